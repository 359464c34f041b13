/* A device that speaks ESPHome's API transport, Noise_NNpsk0_25519_ChaChaPoly_SHA256, for
 * bench_noise.py: what the lightest encryption that people use today costs, as C on the device.
 *
 *     noise_device PORT CONNECTIONS SENT RECEIVED SIZE
 *
 * Makes so many connections and in each is the responder, as an ESPHome device is (but that it calls
 * its peer, not the peer it). In the last one it sends so many messages more, and then receives so
 * many, of SIZE bytes; each begins with its number.
 *
 * sodium_init() is not called on purpose: without it libsodium stays with its portable C, which is
 * what a microcontroller has, and takes no vector instructions.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include <sodium.h>

#define MOST 16384
#define TAG 16
#define FRAME 3  /* 0x01, length */
#define HEAD 4   /* type of the message, length */
#define STATE 25 /* SensorStateResponse */

typedef struct {
    uint8_t key[32];
    uint64_t n;
} Cipher;

typedef struct {
    uint8_t h[32], ck[32];
    Cipher cipher;
} Handshake;

/* The key that both know: a bench's, and no secret. */
static uint8_t psk[32];
static const char protocol[] = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";
static const char prologue[] = "NoiseAPIInit\0"; /* and the length of the client's hello, 0 */
static uint8_t frame[FRAME + HEAD + MOST + TAG];

static void stop(const char *why) {
    fprintf(stderr, "noise_device: %s\n", why);
    exit(1);
}

static void nonce_of(uint8_t nonce[12], uint64_t n) {
    memset(nonce, 0, 4);
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(n >> (8 * i));
}

static size_t seal(Cipher *c, uint8_t *buf, size_t n, const uint8_t *ad, size_t ad_len) {
    uint8_t nonce[12];
    nonce_of(nonce, c->n++);
    crypto_aead_chacha20poly1305_ietf_encrypt(buf, NULL, buf, n, ad, ad_len, NULL, nonce, c->key);
    return n + TAG;
}

static size_t unseal(Cipher *c, uint8_t *buf, size_t n, const uint8_t *ad, size_t ad_len) {
    uint8_t nonce[12];
    nonce_of(nonce, c->n++);
    if (n < TAG || crypto_aead_chacha20poly1305_ietf_decrypt(
                       buf, NULL, NULL, buf, n, ad, ad_len, nonce, c->key))
        stop("a message does not verify");
    return n - TAG;
}

static void mac(uint8_t out[32], const uint8_t key[32], const uint8_t *a, size_t a_len,
                const uint8_t *b, size_t b_len) {
    crypto_auth_hmacsha256_state s;
    crypto_auth_hmacsha256_init(&s, key, 32);
    crypto_auth_hmacsha256_update(&s, a, a_len);
    crypto_auth_hmacsha256_update(&s, b, b_len);
    crypto_auth_hmacsha256_final(&s, out);
}

/* HKDF of the Noise specification, 4.3: ck becomes the first output. */
static void hkdf(uint8_t ck[32], const uint8_t *in, size_t n, uint8_t *second, uint8_t *third) {
    uint8_t temp[32], first[32], two[32];
    mac(temp, ck, in, n, NULL, 0);
    mac(first, temp, (const uint8_t *)"\1", 1, NULL, 0);
    mac(two, temp, first, 32, (const uint8_t *)"\2", 1);
    if (third) mac(third, temp, two, 32, (const uint8_t *)"\3", 1);
    memcpy(ck, first, 32);
    memcpy(second, two, 32);
}

static void mix_hash(Handshake *s, const uint8_t *data, size_t n) {
    crypto_hash_sha256_state h;
    crypto_hash_sha256_init(&h);
    crypto_hash_sha256_update(&h, s->h, 32);
    crypto_hash_sha256_update(&h, data, n);
    crypto_hash_sha256_final(&h, s->h);
}

static void mix_key(Handshake *s, const uint8_t in[32]) {
    hkdf(s->ck, in, 32, s->cipher.key, NULL);
    s->cipher.n = 0;
}

static void all(int sock, uint8_t *buf, size_t n) {
    while (n) {
        ssize_t got = read(sock, buf, n);
        if (got <= 0) stop("the peer hung up");
        buf += got;
        n -= (size_t)got;
    }
}

/* The bytes in the next frame, which are at frame + FRAME. */
static size_t receive(int sock) {
    all(sock, frame, FRAME);
    size_t n = (size_t)frame[1] << 8 | frame[2];
    if (frame[0] != 1 || n > sizeof frame - FRAME) stop("not a frame");
    all(sock, frame + FRAME, n);
    return n;
}

static void send_frame(int sock, size_t n) {
    frame[0] = 1;
    frame[1] = (uint8_t)(n >> 8);
    frame[2] = (uint8_t)n;
    if (write(sock, frame, FRAME + n) != (ssize_t)(FRAME + n)) stop("the peer does not read");
}

static int call(int port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1, sock = socket(AF_INET, SOCK_STREAM, 0);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (sock < 0 || connect(sock, (struct sockaddr *)&to, sizeof to)) stop("cannot connect");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return sock;
}

static void shake(int sock, Cipher *in, Cipher *out) {
    static const char hello[] = "\1bench\0" "001122334455";
    uint8_t private[32], public[32], remote[32], shared[32], temp[32];
    uint8_t *body = frame + FRAME;
    Handshake s;
    if (receive(sock)) stop("the client's hello is not empty");
    memcpy(body, hello, sizeof hello);
    send_frame(sock, sizeof hello);

    crypto_hash_sha256(s.h, (const uint8_t *)protocol, sizeof protocol - 1);
    memcpy(s.ck, s.h, 32);
    mix_hash(&s, (const uint8_t *)prologue, sizeof prologue);
    hkdf(s.ck, psk, 32, temp, s.cipher.key); /* psk */
    mix_hash(&s, temp, 32);

    if (receive(sock) != 1 + 32 + TAG || body[0]) stop("not a handshake");
    memcpy(remote, body + 1, 32); /* e */
    mix_hash(&s, remote, 32);
    mix_key(&s, remote);
    memcpy(temp, s.h, 32);
    memcpy(shared, body + 33, TAG);
    unseal(&s.cipher, body + 33, TAG, temp, 32);
    mix_hash(&s, shared, TAG);

    if (getrandom(private, 32, 0) != 32) stop("no random bytes");
    crypto_scalarmult_base(public, private);
    body[0] = 0;
    memcpy(body + 1, public, 32); /* e, ee */
    mix_hash(&s, public, 32);
    mix_key(&s, public);
    if (crypto_scalarmult(shared, private, remote)) stop("a point of small order");
    mix_key(&s, shared);
    seal(&s.cipher, body + 33, 0, s.h, 32);
    send_frame(sock, 1 + 32 + TAG);

    hkdf(s.ck, NULL, 0, temp, NULL);
    memcpy(in->key, s.ck, 32);
    memcpy(out->key, temp, 32);
    in->n = out->n = 0;
}

static void publish(int sock, Cipher *out, unsigned number, size_t size) {
    uint8_t *body = frame + FRAME;
    body[0] = 0;
    body[1] = STATE;
    body[2] = (uint8_t)(size >> 8);
    body[3] = (uint8_t)size;
    memset(body + HEAD, 0, size);
    body[HEAD] = (uint8_t)(number >> 8);
    body[HEAD + 1] = (uint8_t)number;
    send_frame(sock, seal(out, body, HEAD + size, NULL, 0));
}

int main(int argc, char **argv) {
    if (argc != 6) stop("usage: noise_device PORT CONNECTIONS SENT RECEIVED SIZE");
    int connections = atoi(argv[2]), sent = atoi(argv[3]), received = atoi(argv[4]);
    size_t size = (size_t)atoi(argv[5]);
    if (size < 2 || size > MOST) stop("SIZE is 2 to 16384");
    for (int i = 0; i < 32; i++) psk[i] = (uint8_t)i;
    Cipher in, out;
    for (int i = 0; i < connections; i++) {
        int sock = call(atoi(argv[1]));
        shake(sock, &in, &out);
        publish(sock, &out, 0, size);
        if (i == connections - 1) {
            for (int k = 1; k <= sent; k++) publish(sock, &out, (unsigned)k, size);
            for (int k = 1; k <= received; k++) {
                size_t n = unseal(&in, frame + FRAME, receive(sock), NULL, 0);
                uint8_t *body = frame + FRAME + HEAD;
                if (n != HEAD + size || body[0] << 8 != (k & 0xff00) || body[1] != (k & 255))
                    stop("not the message that was to come");
            }
        }
        close(sock);
    }
    puts("done");
    return 0;
}
