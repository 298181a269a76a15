/*
 * Plugins for Thalweg in C: validators, partition selectors and serializers of
 * your own. (In C++, <thalweg/plugin.hpp> is shorter.)
 *
 * A plugin is a table of functions that a shared library exports:
 *
 *     static const thalweg_plugin table = {
 *         THALWEG_PLUGIN_ABI_VERSION, sizeof(thalweg_plugin),
 *         create, destroy, validate, NULL, NULL, NULL
 *     };
 *     THALWEG_EXPORT_PLUGIN(energy, &table)
 *
 * Compile it with -fPIC -shared; nothing has to be linked. A topic names it
 * with its file, "energy:libenergy.so", and each client finds the file by its
 * search path: the directories of THALWEG_PLUGIN_PATH (with ':' between them),
 * then where the system looks for libraries.
 *
 * One table may offer several of the three; the functions of the others are
 * NULL. A serializer has both of its functions.
 *
 * Rules for all functions. Text is UTF-8; texts and metadata are given with
 * their length and do not end with a zero byte. What is given is valid until
 * the function returns. No exception, longjmp or exit may leave a function. A
 * function that fails says why, in one sentence, by appending it to `reason`.
 * A library is never unloaded.
 */
#ifndef THALWEG_PLUGIN_H
#define THALWEG_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the table below. A client refuses any other. */
#define THALWEG_PLUGIN_ABI_VERSION 1

/* What functions return. */
enum {
    THALWEG_PLUGIN_OK = 0,
    /* The metadata is refused; `reason` says why. */
    THALWEG_PLUGIN_REFUSED = 1,
    /* The plugin itself has failed; `reason` says why. */
    THALWEG_PLUGIN_FAILED = 2
};

/*
 * Where a function writes to. The memory is the client's: it grows up to a
 * limit, and nothing can be written past it.
 */
typedef struct thalweg_plugin_output thalweg_plugin_output;
struct thalweg_plugin_output {
    /*
     * Appends `bytes` bytes from `data`. Returns 0, or another number if the
     * limit is exceeded; the caller is then told so whatever the plugin
     * returns. (A reason is cut instead.)
     */
    int32_t (*append)(thalweg_plugin_output *output, const void *data, size_t bytes);
};

/* What a partition selector may look at. */
typedef struct {
    /* The event's metadata, as it was pushed. */
    const uint8_t *metadata;
    size_t metadata_bytes;
    /* The event's key; NULL if it has none. */
    const uint8_t *key;
    size_t key_bytes;
    /* How many partitions the topic has, at least 1. May grow between calls. */
    uint32_t partition_count;
    uint32_t reserved;
} thalweg_plugin_event;

typedef struct {
    /* THALWEG_PLUGIN_ABI_VERSION and sizeof(thalweg_plugin). */
    uint32_t abi_version;
    uint32_t table_bytes;

    /*
     * Makes an instance with the topic's options, a JSON object, and stores it
     * in `*instance`; it is handed to the functions below. Validators and
     * serializers have one for each opened topic, selectors one for each
     * producer. A plugin that keeps nothing may store NULL.
     */
    int32_t (*create)(const char *options, size_t options_bytes, void **instance,
                      thalweg_plugin_output *reason);
    /* Ends an instance. May be NULL. */
    void (*destroy)(void *instance);

    /*
     * Validators: THALWEG_PLUGIN_OK if the metadata may enter the topic. Called
     * by several threads at once. The same bytes always get the same answer.
     */
    int32_t (*validate)(void *instance, const uint8_t *metadata, size_t metadata_bytes,
                        thalweg_plugin_output *reason);

    /*
     * Partition selectors: stores the event's partition, below
     * `event->partition_count`. Called by one thread at a time, in the order of
     * pushing, for events that ask for no partition themselves.
     */
    int32_t (*select)(void *instance, const thalweg_plugin_event *event, uint32_t *partition,
                      thalweg_plugin_output *reason);

    /*
     * Serializers: appends to `bytes` what is stored and sent for `metadata`,
     * and back. `deserialize` undoes `serialize`, and must cope with any bytes.
     * Called by several threads at once.
     */
    int32_t (*serialize)(void *instance, const uint8_t *metadata, size_t metadata_bytes,
                         thalweg_plugin_output *bytes, thalweg_plugin_output *reason);
    int32_t (*deserialize)(void *instance, const uint8_t *bytes, size_t bytes_count,
                           thalweg_plugin_output *metadata, thalweg_plugin_output *reason);
} thalweg_plugin;

/*
 * Exports a table under a name, by the one function that a client looks for:
 * `thalweg_plugin_NAME`.
 */
#if defined(__GNUC__)
#define THALWEG_PLUGIN_VISIBLE __attribute__((visibility("default")))
#else
#define THALWEG_PLUGIN_VISIBLE
#endif
#ifdef __cplusplus
#define THALWEG_PLUGIN_C extern "C"
#else
#define THALWEG_PLUGIN_C
#endif
#define THALWEG_EXPORT_PLUGIN(name, table)                                     \
    THALWEG_PLUGIN_C THALWEG_PLUGIN_VISIBLE const thalweg_plugin *thalweg_plugin_##name(void); \
    THALWEG_PLUGIN_C const thalweg_plugin *thalweg_plugin_##name(void) { return (table); }

#ifdef __cplusplus
}
#endif

#endif
