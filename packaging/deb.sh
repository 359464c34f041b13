#!/usr/bin/env bash
# build/deb/sealmq_VERSION+DEBIAN_ARCH.deb: a virtualenv in /opt/sealmq with all that a gateway needs, `sealmq` on
# the path, the systemd units, man pages, completion. For the Debian that it is made on: the
# virtualenv is bound to that Python's version, which the package depends on. `deb.sh arm64` (or amd64):
# for another machine, of wheels that their makers have compiled for it; nothing is emulated.
set -euo pipefail
cd "$(dirname "$0")/.."
# Debian's own: the package's virtualenv starts it on the machine where it is installed.
python=/usr/bin/python3
here=$(dpkg --print-architecture)
architecture=${1:-$here}
# As wheels call it.
case "$architecture" in
amd64) machine=x86_64 ;;
arm64) machine=aarch64 ;;
*)
    echo "deb: error: no package is made for $architecture" >&2
    echo "deb: hint: amd64 or arm64" >&2
    exit 2
    ;;
esac
# Who installs a package cannot add an extra later.
extras=${EXTRAS-flash,factory,mdns}
target=/opt/sealmq

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
umask 022

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
# Here the program runs, to write its own pages.
runs=$root
[ "$architecture" = "$here" ] || runs=$work/runs
mkdir -p "$root/DEBIAN" "$root$target" "$runs$target" build/deb

wheel=$(ls build/dist/sealmq-*.whl)
wanted="$wheel${extras:+[$extras]}"
held=(--quiet --disable-pip-version-check --constraint .ci/constraints.txt)
"$python" -m venv "$runs$target"
"$runs$target/bin/pip" wheel "${held[@]}" --wheel-dir "$work/wheels" "$wanted"
"$runs$target/bin/pip" install "${held[@]}" --no-compile --no-index --find-links "$work/wheels" "$wanted"

if [ "$runs" != "$root" ]; then
    # What is pure Python is the same file; a source archive, of which pip makes a wheel here, must be so.
    find "$work/wheels" -name '*.whl' ! -name '*-none-any.whl' -delete
    # As many platforms as this Debian's libc runs.
    libc=$(getconf GNU_LIBC_VERSION | cut -d. -f2)
    platforms=()
    for minor in $(seq "$libc" -1 17); do platforms+=(--platform "manylinux_2_${minor}_$machine"); done
    "$python" -m venv "$root$target"
    packages=$(echo "$root$target"/lib/python3*/site-packages)
    "$root$target/bin/pip" install "${held[@]}" --no-compile --only-binary :all: --find-links "$work/wheels" \
        "${platforms[@]}" --platform "manylinux2014_$machine" --target "$packages" "$wanted"
    # With --target, commands lie beside the modules.
    mv "$packages"/bin/* "$root$target/bin/"
    rmdir "$packages/bin"
    find "$packages" -name RECORD -path '*.dist-info/*' -exec sed -i 's#^\(\.\./\)*bin/#../../../bin/#' {} +
fi

version=$("$runs$target/bin/python" -P -c 'import sealmq; print(sealmq.__version__)')
# One for each Debian, and the one of a newer Debian is an upgrade.
debian=$(. /etc/os-release && [ "$ID" = debian ] && echo "deb$VERSION_ID" || echo "$ID$VERSION_ID")
packaged=$version+$debian
needs=$("$python" -c 'import sys; a, b = sys.version_info[:2]; print(f"python3 (>= {a}.{b}), python3 (<< {a}.{b + 1})")')

# Commands, completion and manual are made by the program itself, before it is moved.
pages=$root/usr/share
mkdir -p "$pages/man/man1" "$pages/bash-completion/completions" "$pages/zsh/vendor-completions"
"$runs$target/bin/sealmq" manual --into "$pages/man/man1" >/dev/null
gzip -9n "$pages"/man/man1/*.1
"$runs$target/bin/sealmq" completion bash >"$pages/bash-completion/completions/sealmq"
"$runs$target/bin/sealmq" completion zsh >"$pages/zsh/vendor-completions/_sealmq"

"$root$target/bin/pip" uninstall --quiet --yes pip setuptools 2>/dev/null
# One command; what others brought (esptool.py, amqtt...) is run as modules, and root's is not to
# write compiled files beside them. A virtualenv knows where it was made: in that command's first
# line and in its own file.
find "$root$target/bin" -type f ! -name sealmq -delete
grep -rIlF --null "$root$target" "$root$target" | xargs -0 -r sed -i "s#$root$target#$target#g"
# Compiled here, by content: a command that root runs writes nothing there, and the package is the
# same whenever it is made.
find "$root$target" -name __pycache__ -prune -exec rm -rf {} +
"$python" -m compileall -q -j 0 --invalidation-mode unchecked-hash -s "$root" \
    "$root$target/lib"/python3*/site-packages
find "$root$target" -name RECORD -path '*.dist-info/*' -exec sed -i '/__pycache__/d' {} +

install -D -m 0644 -t "$root/usr/lib/systemd/system" gateway/systemd/*.service
mkdir -p "$root/usr/bin" "$root/usr/share/doc/sealmq" "$root/etc/sealmq"
chmod 0700 "$root/etc/sealmq"
ln -s "$target/bin/sealmq" "$root/usr/bin/sealmq"
gzip -9nc CHANGELOG.md >"$root/usr/share/doc/sealmq/changelog.gz"
install -m 0644 LICENSE "$root/usr/share/doc/sealmq/copyright"

size=$(du -sk --apparent-size --exclude DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$packaged/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@PYTHON@/$needs/" \
    -e "s/@SIZE@/$size/" packaging/debian/control.in >"$root/DEBIAN/control"
install -m 0755 -t "$root/DEBIAN" packaging/debian/{preinst,postinst,prerm,postrm}

find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference -d "@$SOURCE_DATE_EPOCH" {} +
made=build/deb/sealmq_${packaged}_$architecture.deb
dpkg-deb --root-owner-group -Zzstd --build "$root" "$made" >/dev/null
echo "$made: $(stat -c %s "$made" | numfmt --to=iec), $((size / 1024)) MB installed"
