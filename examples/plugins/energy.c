/*
 * Three plugins in C for events whose metadata is {"energy": NUMBER}:
 *
 *   energy_validator   refuses energies that are not from 0 to `energy_max`
 *   energy_selector    cuts 0 to `energy_max` into as many equal ranges as the
 *                      topic has partitions
 *   energy_serializer  stores and sends the 8 bytes of a double instead of the text
 *
 *   cc -std=c11 -fPIC -shared $(pkg-config --cflags thalweg) energy.c -o libenergy.so
 *   export THALWEG_PLUGIN_PATH=$PWD
 *   thalweg topic create events -p 4 \
 *     --validator '{"type": "plugin", "name": "energy_validator:libenergy.so",
 *                   "options": {"energy_max": 100.0}}' ...
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <thalweg/plugin.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the stored double is little endian"
#endif

static int32_t say(thalweg_plugin_output *reason, int32_t code, const char *text) {
    reason->append(reason, text, strlen(text));
    return code;
}

static const char *skip_space(const char *at) {
    return at + strspn(at, " \t\r\n");
}

/* Reads an object with one member, a finite number. Returns 1 if it is one. */
static int read_number(const char *text, size_t bytes, const char *member, double *number) {
    char copy[128];
    char *end;
    const char *at = copy;
    size_t member_bytes = strlen(member);
    if (bytes >= sizeof copy || memchr(text, 0, bytes) != NULL) {
        return 0;
    }
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    at = skip_space(at);
    if (*at++ != '{') return 0;
    at = skip_space(at);
    if (*at++ != '"' || strncmp(at, member, member_bytes) != 0) return 0;
    at += member_bytes;
    if (*at++ != '"') return 0;
    at = skip_space(at);
    if (*at++ != ':') return 0;
    at = skip_space(at);
    /* strtod takes more than JSON does: infinities, hexadecimal, a plus. */
    if (*at != '-' && (*at < '0' || *at > '9')) return 0;
    if (strspn(at, "-+.0123456789eE") < strcspn(at, " \t\r\n}")) return 0;
    *number = strtod(at, &end);
    at = skip_space(end);
    return *at == '}' && *skip_space(at + 1) == 0 && isfinite(*number);
}

static int read_energy(const uint8_t *metadata, size_t bytes, double *energy) {
    return read_number((const char *)metadata, bytes, "energy", energy);
}

/* An instance of the validator and of the selector: the greatest energy. */
static int32_t create(const char *options, size_t options_bytes, void **instance,
                      thalweg_plugin_output *reason) {
    double *energy_max = malloc(sizeof *energy_max);
    if (energy_max == NULL) {
        return say(reason, THALWEG_PLUGIN_FAILED, "no memory");
    }
    if (!read_number(options, options_bytes, "energy_max", energy_max) || *energy_max <= 0) {
        free(energy_max);
        return say(reason, THALWEG_PLUGIN_FAILED, "expected {\"energy_max\": a number above 0}");
    }
    *instance = energy_max;
    return THALWEG_PLUGIN_OK;
}

static int32_t validate(void *instance, const uint8_t *metadata, size_t metadata_bytes,
                        thalweg_plugin_output *reason) {
    const double energy_max = *(const double *)instance;
    double energy;
    if (!read_energy(metadata, metadata_bytes, &energy)) {
        return say(reason, THALWEG_PLUGIN_REFUSED, "expected {\"energy\": a number}");
    }
    if (energy < 0 || energy > energy_max) {
        char text[128];
        snprintf(text, sizeof text, "energy %g is not from 0 to %g", energy, energy_max);
        return say(reason, THALWEG_PLUGIN_REFUSED, text);
    }
    return THALWEG_PLUGIN_OK;
}

static int32_t select_partition(void *instance, const thalweg_plugin_event *event,
                                uint32_t *partition, thalweg_plugin_output *reason) {
    const double energy_max = *(const double *)instance;
    double energy;
    if (!read_energy(event->metadata, event->metadata_bytes, &energy)) {
        return say(reason, THALWEG_PLUGIN_REFUSED, "expected {\"energy\": a number}");
    }
    double part = floor(energy / energy_max * event->partition_count);
    double last = event->partition_count - 1;
    *partition = (uint32_t)(part < 0 ? 0 : part > last ? last : part);
    return THALWEG_PLUGIN_OK;
}

/* The serializer keeps nothing and has no options. */
static int32_t create_serializer(const char *options, size_t options_bytes, void **instance,
                                 thalweg_plugin_output *reason) {
    if (options_bytes != 2 || memcmp(options, "{}", 2) != 0) {
        return say(reason, THALWEG_PLUGIN_FAILED, "the serializer has no options");
    }
    *instance = NULL;
    return THALWEG_PLUGIN_OK;
}

static int32_t serialize(void *instance, const uint8_t *metadata, size_t metadata_bytes,
                         thalweg_plugin_output *bytes, thalweg_plugin_output *reason) {
    double energy;
    (void)instance;
    if (!read_energy(metadata, metadata_bytes, &energy)) {
        return say(reason, THALWEG_PLUGIN_REFUSED, "expected {\"energy\": a number}");
    }
    bytes->append(bytes, &energy, sizeof energy);
    return THALWEG_PLUGIN_OK;
}

static int32_t deserialize(void *instance, const uint8_t *bytes, size_t bytes_count,
                           thalweg_plugin_output *metadata, thalweg_plugin_output *reason) {
    char text[64];
    double energy;
    (void)instance;
    if (bytes_count != sizeof energy) {
        return say(reason, THALWEG_PLUGIN_FAILED, "an energy has 8 bytes");
    }
    memcpy(&energy, bytes, sizeof energy);
    if (!isfinite(energy)) {
        return say(reason, THALWEG_PLUGIN_FAILED, "the stored energy is not finite");
    }
    int length = snprintf(text, sizeof text, "{\"energy\":%.17g}", energy);
    metadata->append(metadata, text, (size_t)length);
    return THALWEG_PLUGIN_OK;
}

static const thalweg_plugin validator = {
    THALWEG_PLUGIN_ABI_VERSION, sizeof(thalweg_plugin), create, free, validate, NULL, NULL, NULL};
static const thalweg_plugin selector = {
    THALWEG_PLUGIN_ABI_VERSION, sizeof(thalweg_plugin), create, free, NULL, select_partition, NULL,
    NULL};
static const thalweg_plugin serializer = {
    THALWEG_PLUGIN_ABI_VERSION, sizeof(thalweg_plugin), create_serializer, NULL, NULL, NULL,
    serialize, deserialize};

THALWEG_EXPORT_PLUGIN(energy_validator, &validator)
THALWEG_EXPORT_PLUGIN(energy_selector, &selector)
THALWEG_EXPORT_PLUGIN(energy_serializer, &serializer)
