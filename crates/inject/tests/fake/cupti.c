/* A CUPTI with one subscriber and no driver: a program makes callbacks itself, by `fake_call`. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Callback)(void *, int, uint32_t, const void *);
typedef struct {
    int site;
    const char *name;
    const void *params;
    void *result;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *correlation;
    uint32_t correlation_id;
} Data;

static Callback subscriber;
static char enabled[2048];

int cuptiSubscribe(void **handle, Callback callback, void *user) {
    if (getenv("FAKE_TAKEN")) return 39;
    if (subscriber) return 12;
    subscriber = callback;
    *handle = (void *)1;
    return 0;
}
int cuptiEnableCallback(uint32_t enable, void *handle, int domain, uint32_t id) {
    if (domain != 1 || id >= sizeof enabled) return 1;
    enabled[id] = (char)enable;
    return 0;
}
int cuptiGetVersion(uint32_t *version) { *version = 130000; return 0; }
int cuptiGetDeviceId(void *context, uint32_t *device) { *device = (uint32_t)((uintptr_t)context >> 4) - 1; return 0; }
int cuptiGetResultString(int code, const char **words) { *words = "FAKE"; return 0; }

/* A call of the driver function with this number: both callbacks, as far as they are asked for. */
void fake_call(uint32_t id, const void *params, int result, const char *symbol) {
    uint64_t kept = 0;
    Data data = {0, "", params, 0, symbol, (void *)16, 1, &kept, 0};
    if (!subscriber || !enabled[id]) return;
    subscriber(0, 1, id, &data);
    data.site = 1;
    data.result = &result;
    subscriber(0, 1, id, &data);
}
