# Numbers of the wire format (SPEC.md, sections 1 to 4 and 9). Nothing else may write them as
# literals.

USER = b"sealmq1"
CONTROL = b"!c1"
TOKEN = b"!s1/"
PUBLIC = b"@sm1/"

CCM = 1
CHACHA = 2
TAG = 16

# First bytes of what is sealed or tagged.
M1 = 0x11
M2 = 0x12
M3 = 0x13
UP = 0x14
DOWN = 0x15
PROOF = 0x16
TOKENED = 0x17
RECORD = 0x18
MANIFEST = 0x19
ASK = 0x1A
ANSWER = 0x1B
KGTIME = 0x1D

M1_HEAD = 27
M2_HEAD = 9
M3_HEAD = 20
DOWN_HEAD = 14
RECORD_LEN = 130
MANIFEST_LEN = 44
ASK_LEN = 43
KGTIME_LEN = 43
M1_MIN = M1_HEAD + TAG
M2_MIN = M2_HEAD + 1 + M1_MIN + TAG
M3_MIN = M3_HEAD + 1 + M1_MIN + TAG

# m1's class, and the bit beside it.
LIVE = 0
RETAINED = 1
WILL = 2
CLEAR = 3
UNTIMED = 8

# m3's how (0 to 2 are the classes' names) and ref.
QUEUED = 3
REF_LABEL = 0
REF_LINK = 1
REF_GRANT = 2

# What a link key is for (F "l1").
USE_PUBLISH = 1
USE_CONTROL = 2
USE_DOWN = 3
USE_DELIVERY = 4

# The fourth byte group of a client's nonce: salt, kind, ctr.
N_INNER = b"\x00"
N_LINK = b"\x01"
N_CONTROL = b"\x02"
N_PROOF = b"\x03"
N_TOKEN = b"\x04"

SUBSCRIBE = 0
UNSUBSCRIBE = 1

# Control operations.
OP_WELCOME = 1
OP_RECEIPT = 2
OP_NOTICE = 3
OP_EPOCH = 4
OP_RECORD = 5
OP_TIME = 6
OP_REPLY = 7
OP_GRANT = 8
OP_NEWS = 9
OP_COMMAND = 0x81
OP_ASK_TIME = 0x82
OP_FETCH = 0x83
OP_NAMES = 0x84

READY = 0
BEHIND = 1
WANT_KG_TIME = 1
FRESH_TOKENS = 2

TLV_KG_TIME = 1
TLV_FIRED = 2
TLV_LABEL = 3
TLV_ORIGIN = 4
TLV_FAMILIES = 32  # and above: the policy families'

LABEL_NONE = 0
LABEL_BOTTOM = 1
LABEL_TOP = 2
LABEL_FIRST = 16

U24 = 0xFFFFFF
WINDOW_S = 60
ROUND_TRIP_MS = 2000
# Later times are refused: t_pub and s1 are u32 seconds, and clocks go on (2096).
TIME_MAX_MS = 4000000000000
LIFE_FOREVER = 255
MAX_TOPIC = 1024
MAX_PAYLOAD = 1048576
MAX_CONNECT = 16384
MAX_TLV = 16383
MAX_CLIENT_ID = 64
MAX_PURPOSE = 128
MAX_COMMAND = 8192
RECEIPT_EVERY = 16
