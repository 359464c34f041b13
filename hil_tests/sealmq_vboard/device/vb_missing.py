# What the board has and this one has not: the name is there, as on the board, and using it says so.
# child.py's report lists these names from the modules' `_MISSING`.
class Missing:
    def __init__(self, name):
        self._name = name

    def __call__(self, *args, **kw):
        raise NotImplementedError("virtual board: %s" % self._name)

    def __getattr__(self, name):
        raise NotImplementedError("virtual board: %s.%s" % (self._name, name))


def fill(scope, module, names):
    for name in names:
        scope[name] = Missing("%s.%s" % (module, name))
