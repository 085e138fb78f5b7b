/* Random collective and independent calls on a file, from a seed. Prints what every call gave: the digest of statuses,
 * positions and buffers of all ranks, and at the end of each case that of the file. Run with and without the collective
 * layer, the output must be the same.
 *
 * usage: cases FILE FIRST NUMBER     (cases FIRST to FIRST + NUMBER - 1) */
#include <mpi.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "short_slice.h"

#define MAX_BLOCKS 48
#define FILE_BYTES (1 << 16)

static int rank, size;

typedef struct { uint64_t state; } Dice;

static uint64_t roll(Dice *dice) {
    uint64_t z = (dice->state += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}
static int below(Dice *dice, int n) { return (int)(roll(dice) % (uint64_t)n); }
static int one_in(Dice *dice, int n) { return below(dice, n) == 0; }

static uint64_t digest(uint64_t hash, const void *from, size_t bytes) {
    const unsigned char *at = from;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3ull;
    return hash;
}

/* Element types. */
static MPI_Datatype triple;
static MPI_Datatype element_type(int which) {
    switch (which) {
    case 0: return MPI_BYTE;
    case 1: return MPI_INT;
    case 2: return MPI_DOUBLE;
    case 3: return MPI_SHORT;
    default: return triple;
    }
}

/* A view: the same kind on all ranks, and no byte of two ranks. */
typedef struct {
    MPI_Offset displacement;
    MPI_Datatype element, tile;
    int element_bytes;
    int tile_elements; /* of this rank; may be 0 */
    int tiles;         /* as many fit into the file */
} View;

static void give_blocks(Dice *dice, Dice *own, View *view, int wide) {
    /* Blocks of a tile are dealt out at random, some to nobody. */
    int blocks = 1 + below(dice, MAX_BLOCKS), at = 0, mine = 0;
    int lengths[MAX_BLOCKS], places[MAX_BLOCKS];
    int same = one_in(dice, 3) ? 1 + below(dice, 5) : 0;
    int holes = one_in(dice, 2);
    for (int i = 0; i < blocks; i++) {
        int length = same ? same : 1 + below(dice, wide ? 200 : 9);
        int who = below(dice, size + holes);
        if (holes && one_in(dice, 8)) at += below(dice, 40);
        if (who == rank) {
            lengths[mine] = length;
            places[mine++] = at;
        }
        at += length;
    }
    if (holes) at += below(dice, 10);
    int bytes = view->element_bytes, total = 0;
    MPI_Aint far[MAX_BLOCKS];
    MPI_Datatype types[MAX_BLOCKS], inner, made;
    for (int i = 0; i < mine; i++) {
        far[i] = (MPI_Aint)places[i] * bytes;
        types[i] = view->element;
        total += lengths[i];
    }
    int how = below(own, same ? 6 : 4);
    if (mine == 0) how = 1;
#ifdef MPI_ABI
    if (how == 3) how = 2; /* ROMIO of MPICH 5.0.2 ends in an assertion when it takes some of these apart */
#endif
    switch (how) {
    case 0: MPI_Type_indexed(mine, lengths, places, view->element, &made); break;
    case 1: MPI_Type_create_hindexed(mine, lengths, far, view->element, &made); break;
    case 2: MPI_Type_create_struct(mine, lengths, far, types, &made); break;
    case 3: { /* a struct of contiguous types, duplicated */
        int ones[MAX_BLOCKS] = {0};
        for (int i = 0; i < mine; i++) {
            ones[i] = 1;
            MPI_Type_contiguous(lengths[i], view->element, &types[i]);
        }
        MPI_Type_create_struct(mine, ones, far, types, &inner);
        for (int i = 0; i < mine; i++) MPI_Type_free(&types[i]);
        MPI_Type_dup(inner, &made);
        MPI_Type_free(&inner);
        break;
    }
    case 4: MPI_Type_create_indexed_block(mine, same, places, view->element, &made); break;
    default: MPI_Type_create_hindexed_block(mine, same, far, view->element, &made); break;
    }
    MPI_Type_create_resized(made, 0, (MPI_Aint)at * bytes, &view->tile);
    MPI_Type_free(&made);
    view->tile_elements = total;
    view->displacement = below(dice, 3) * 64;
    view->tiles = (FILE_BYTES - (int)view->displacement) / (at * bytes);
}

static void give_vector(Dice *dice, View *view) {
    int count = 1 + below(dice, 40), block = 1 + below(dice, 12), gap = below(dice, 3);
    int stride = (size + gap) * block, bytes = view->element_bytes;
    MPI_Datatype made;
    if (one_in(dice, 2))
        MPI_Type_vector(count, block, stride, view->element, &made);
    else
        MPI_Type_create_hvector(count, block, (MPI_Aint)stride * bytes, view->element, &made);
    MPI_Type_create_resized(made, 0, (MPI_Aint)count * stride * bytes, &view->tile);
    MPI_Type_free(&made);
    view->displacement = (MPI_Offset)rank * block * bytes + 16 * below(dice, 4);
    view->tile_elements = count * block;
    view->tiles = (FILE_BYTES - (size + 8) * block * bytes) / (count * stride * bytes);
}

static void give_array(Dice *dice, View *view, int cyclic) {
    int dimensions = 1 + below(dice, 3), grid[3] = {0, 0, 0}, sizes[3], parts[3], starts[3];
    int kinds[3], arguments[3], coordinates[3], all = 1, mine = 1;
    int order = one_in(dice, 2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    MPI_Dims_create(size, dimensions, grid);
    for (int i = dimensions - 1, rest = rank; i >= 0; i--) {
        coordinates[i] = rest % grid[i];
        rest /= grid[i];
    }
    for (int i = 0; i < dimensions; i++) {
        sizes[i] = grid[i] * (1 + below(dice, 7)) + (cyclic ? below(dice, 3) : 0);
        kinds[i] = one_in(dice, 2) ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC;
        arguments[i] = MPI_DISTRIBUTE_DFLT_DARG;
        if (one_in(dice, 2))
            arguments[i] = kinds[i] == MPI_DISTRIBUTE_CYCLIC ? 1 + below(dice, 3) : (sizes[i] + grid[i] - 1) / grid[i] + below(dice, 2);
        parts[i] = sizes[i] / grid[i];
        starts[i] = coordinates[i] * parts[i];
        mine *= parts[i];
        all *= sizes[i];
    }
    if (cyclic) {
        MPI_Type_create_darray(size, rank, dimensions, sizes, kinds, arguments, grid, order, view->element, &view->tile);
        MPI_Type_size(view->tile, &mine);
        mine /= view->element_bytes;
    } else {
        MPI_Type_create_subarray(dimensions, sizes, parts, starts, order, view->element, &view->tile);
    }
    view->tile_elements = mine;
    view->displacement = 8 * below(dice, 5);
    view->tiles = (FILE_BYTES - (int)view->displacement) / (all * view->element_bytes);
}

static void give_segments(Dice *dice, View *view) {
    /* A part of the file for each rank, seen as elements. */
    int share = FILE_BYTES / size / view->element_bytes * view->element_bytes;
    view->displacement = (MPI_Offset)rank * share;
    MPI_Type_dup(view->element, &view->tile);
    view->tile_elements = 1;
    view->tiles = 1 + below(dice, share / view->element_bytes);
}

static View make_view(Dice *dice, Dice *own) {
    View view;
    int kind;
    view.element = element_type(below(dice, 5));
    MPI_Type_size(view.element, &view.element_bytes);
    switch (kind = below(dice, 6)) {
    case 0: give_blocks(dice, own, &view, 0); break;
    case 1: give_blocks(dice, own, &view, 1); break;
    case 2: give_vector(dice, &view); break;
    case 3: give_array(dice, &view, 0); break;
    case 4: give_array(dice, &view, 1); break;
    default: give_segments(dice, &view); break;
    }
    if (view.tiles > 5) view.tiles = 5 + below(dice, view.tiles - 4);
    MPI_Type_commit(&view.tile);
    if (getenv("CASES_VERBOSE")) {
        MPI_Aint lower, extent;
        MPI_Type_get_extent(view.tile, &lower, &extent);
        fprintf(stderr, "rank %d: kind %d, element %d, displacement %lld, extent %ld, tile of %d elements, %d tiles\n", rank, kind,
                view.element_bytes, (long long)view.displacement, (long)extent, view.tile_elements, view.tiles);
    }
    return view;
}

/* The buffer of a call. */
typedef struct {
    MPI_Datatype type;
    int count;
    unsigned char *from, *base;
    size_t bytes;
} Buffer;

static Buffer make_buffer(Dice *own, View *view, int elements, int fill) {
    Buffer buffer;
    int bytes = view->element_bytes, per = 1;
    MPI_Datatype made = MPI_DATATYPE_NULL;
    MPI_Aint lower = 0, extent;
    if (elements > 0 && elements % 2 == 0 && one_in(own, 2)) per = 2;
    if (elements > 0 && elements % 6 == 0 && one_in(own, 2)) per = 6;
    switch (below(own, 5)) {
    case 0: /* with gaps */
        MPI_Type_vector(per, 1, 2 + below(own, 2), view->element, &made);
        break;
    case 1: { /* backwards */
        MPI_Aint places[6];
        int ones[6];
        for (int i = 0; i < per; i++) {
            places[i] = (MPI_Aint)(per - 1 - i) * (bytes + 3);
            ones[i] = 1;
        }
        MPI_Type_create_hindexed(per, ones, places, view->element, &made);
        break;
    }
    case 2: { /* a gap behind */
        MPI_Datatype inner;
        MPI_Type_contiguous(per, view->element, &inner);
        MPI_Type_create_resized(inner, 0, (MPI_Aint)per * bytes + 5, &made);
        MPI_Type_free(&inner);
        break;
    }
    case 3: { /* begins behind its address. One that begins before it breaks MPICH 4.0. */
        MPI_Aint place = 8;
        MPI_Datatype inner;
        MPI_Type_create_hindexed(1, &per, &place, view->element, &inner);
        MPI_Type_create_resized(inner, 0, (MPI_Aint)per * bytes + 8, &made);
        MPI_Type_free(&inner);
        break;
    }
    default: MPI_Type_contiguous(per, view->element, &made); break;
    }
    MPI_Type_commit(&made);
    MPI_Type_get_extent(made, &lower, &extent);
    buffer.type = made;
    buffer.count = elements / per;
    buffer.bytes = (size_t)extent * buffer.count + 64 + (size_t)per * (bytes * 3 + 8);
    buffer.base = malloc(buffer.bytes);
    buffer.from = buffer.base + 16;
    for (size_t i = 0; i < buffer.bytes; i++) buffer.base[i] = fill ? (unsigned char)roll(own) : 0x5a;
    return buffer;
}

static void drop_buffer(Buffer *buffer) {
    MPI_Type_free(&buffer->type);
    free(buffer->base);
}

/* What the file should hold, on every rank, and which bytes were written at all: MPI says nothing of the bytes between.
 * A view of it is packed, changed, and unpacked again. */
static unsigned char image[2 * FILE_BYTES], written[2 * FILE_BYTES], before[2 * FILE_BYTES], stream[2 * FILE_BYTES],
    packed[2 * FILE_BYTES];

static void pack_view(View *view, unsigned char *from) {
    int position = 0;
    MPI_Pack(from + view->displacement, view->tiles, view->tile, stream, sizeof stream, &position, MPI_COMM_SELF);
}

static void put_bytes(View *view, int offset, int bytes, unsigned char *into) {
    int position = 0, all = view->tiles * view->tile_elements * view->element_bytes;
    memcpy(before, into, sizeof before);
    if (all > 0) {
        pack_view(view, into);
        memcpy(stream + (size_t)offset * view->element_bytes, packed, bytes);
        MPI_Unpack(stream, all, &position, into + view->displacement, view->tiles, view->tile, MPI_COMM_SELF);
    }
    for (size_t i = 0; i < sizeof before; i++) before[i] ^= into[i];
    for (size_t i = 0; i < sizeof before; i++) into[i] ^= before[i];
    MPI_Allreduce(MPI_IN_PLACE, before, sizeof before / 8, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    for (size_t i = 0; i < sizeof before; i++) into[i] ^= before[i];
}

static void expect_write(View *view, int offset, Buffer *buffer) {
    int bytes = 0;
    if (buffer->count > 0) MPI_Pack(buffer->from, buffer->count, buffer->type, packed, sizeof packed, &bytes, MPI_COMM_SELF);
    put_bytes(view, offset, bytes, image);
    memset(packed, 1, bytes);
    put_bytes(view, offset, bytes, written);
}

/* Is what was read what the file holds? */
static int expected_read(View *view, int offset, Buffer *buffer) {
    int position = 0;
    if (buffer->count == 0) return 1;
    pack_view(view, image);
    MPI_Pack(buffer->from, buffer->count, buffer->type, packed, sizeof packed, &position, MPI_COMM_SELF);
    return memcmp(stream + (size_t)offset * view->element_bytes, packed, position) == 0;
}

static MPI_Info make_hints(Dice *dice) {
    static const char *methods[] = {"even", "aligned", "static-cyclic", "group-cyclic"};
    char text[32];
    MPI_Info info;
    if (one_in(dice, 3)) return MPI_INFO_NULL;
    MPI_Info_create(&info);
    if (one_in(dice, 2)) {
        snprintf(text, sizeof text, "%d", 1 + below(dice, size + 1));
        MPI_Info_set(info, "cb_nodes", text);
    }
    if (one_in(dice, 2)) {
        snprintf(text, sizeof text, "%d", 1 << (7 + below(dice, 14)));
        MPI_Info_set(info, "cb_buffer_size", text);
    }
    if (one_in(dice, 2)) {
        snprintf(text, sizeof text, "%d", 512 << below(dice, 8));
        MPI_Info_set(info, "striping_unit", text);
    }
    if (one_in(dice, 2)) {
        snprintf(text, sizeof text, "%d", 1 + below(dice, 3));
        MPI_Info_set(info, "striping_factor", text);
    }
    if (one_in(dice, 3)) MPI_Info_set(info, "cb_config_list", one_in(dice, 2) ? "*:2" : "*:*");
    if (!one_in(dice, 3)) MPI_Info_set(info, "forebay_partition", methods[below(dice, 4)]);
    if (one_in(dice, 2)) MPI_Info_set(info, "forebay_groups", one_in(dice, 2) ? "sequential" : "concurrent");
    return info;
}

static void say(int number, int step, const char *what, uint64_t mine) {
    uint64_t all[64];
    MPI_Gather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (rank != 0) return;
    printf("%d.%d %s", number, step, what);
    for (int i = 0; i < size; i++) printf(" %016llx", (unsigned long long)all[i]);
    printf("\n");
}

/* What a call gave. */
static uint64_t outcome(MPI_File file, int result, MPI_Status *status, Buffer *buffer, int is_read) {
    uint64_t hash = 0xcbf29ce484222325ull;
    int class = 0, count = -7, elements = -7;
    MPI_Offset position;
    if (result != MPI_SUCCESS) MPI_Error_class(result, &class);
    hash = digest(hash, &class, sizeof class);
    if (status) {
        MPI_Get_count(status, buffer->type, &count);
        MPI_Get_elements(status, MPI_BYTE, &elements);
        hash = digest(hash, &count, sizeof count);
        hash = digest(hash, &elements, sizeof elements);
    }
    MPI_File_get_position(file, &position);
    hash = digest(hash, &position, sizeof position);
    if (is_read) hash = digest(hash, buffer->base, buffer->bytes);
    return hash;
}

static void set_view(MPI_File file, View *view) {
    MPI_File_set_view(file, view->displacement, view->element, view->tile, "native", MPI_INFO_NULL);
}

/* A collective read or write in one of its four forms. */
#define COLLECTIVE(name)                                                                                            \
    do {                                                                                                            \
        if (split && explicit) {                                                                                    \
            MPI_File_##name##_at_all_begin(file, offset, buffer.from, buffer.count, buffer.type);                   \
            result = MPI_File_##name##_at_all_end(file, buffer.from, &status);                                      \
        } else if (split) {                                                                                         \
            MPI_File_##name##_all_begin(file, buffer.from, buffer.count, buffer.type);                              \
            result = MPI_File_##name##_all_end(file, buffer.from, &status);                                         \
        } else if (explicit) {                                                                                      \
            result = MPI_File_##name##_at_all(file, offset, buffer.from, buffer.count, buffer.type, &status);       \
        } else {                                                                                                    \
            result = MPI_File_##name##_all(file, buffer.from, buffer.count, buffer.type, &status);                  \
        }                                                                                                           \
    } while (0)

static void run_case(const char *path, int number) {
    Dice dice = {(uint64_t)number * 1000003}, own = {(uint64_t)number * 1000003 + 77 + rank};
    MPI_File file;
    int filled = !one_in(&dice, 4);
    if (rank == 0) {
        int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0644);
        static unsigned char bytes[FILE_BYTES];
        for (int i = 0; i < FILE_BYTES; i++) bytes[i] = (unsigned char)(i * 31 + number);
        if (filled && write(fd, bytes, sizeof bytes) != sizeof bytes) abort();
        close(fd);
    }
    memset(image, 0, sizeof image);
    memset(written, filled, sizeof written);
    for (int i = 0; filled && i < FILE_BYTES; i++) image[i] = (unsigned char)(i * 31 + number);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Info info = make_hints(&dice);
    if (MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file) != MPI_SUCCESS) abort();
    if (info != MPI_INFO_NULL) MPI_Info_free(&info);
    View view = make_view(&dice, &own);
    set_view(file, &view);
    int steps = 1 + below(&dice, 7);
    for (int step = 0; step < steps; step++) {
        int what = below(&dice, 13), explicit = one_in(&dice, 2), result;
        /* Each rank has its own number of elements, and its own place. Some ranks have none. */
        int most = view.tiles * view.tile_elements;
        int elements = most > 0 && !one_in(&own, 6) ? 1 + below(&own, most) : 0;
        int offset = most > 0 ? below(&own, most - elements + 1) : 0;
        const char *name = "?";
        MPI_Status status;
        if (what >= 5 && what <= 8 && !filled) what -= 5; /* nothing to read */
        int is_read = (what >= 5 && what <= 8) || what == 10;
        if (what == 10 && !filled) continue;
        if (what == 11) {
            say(number, step, "view", 0);
            MPI_Type_free(&view.tile);
            view = make_view(&dice, &own);
            MPI_Barrier(MPI_COMM_WORLD);
            set_view(file, &view);
            continue;
        }
        if (what == 12) {
            int atomic = one_in(&dice, 3);
            MPI_File_sync(file);
            MPI_File_set_atomicity(file, atomic);
            MPI_Barrier(MPI_COMM_WORLD);
            say(number, step, atomic ? "atomic" : "nonatomic", 0);
            continue;
        }
        Buffer buffer = make_buffer(&own, &view, elements, !is_read);
        if (!explicit && what != 9 && what != 10) MPI_File_seek(file, offset, MPI_SEEK_SET);
        if (getenv("CASES_VERBOSE")) fprintf(stderr, "rank %d: step %d: %d, explicit %d, %d elements from %d on\n", rank, step, what, explicit, elements, offset);
        int split = what == 4 || what == 8;
        if (is_read && what != 10) {
            name = split ? "read split" : "read";
            COLLECTIVE(read);
        } else if (what < 5) {
            name = split ? "write split" : "write";
            COLLECTIVE(write);
        } else if (what == 9) {
            name = "write alone";
            result = MPI_File_write_at(file, offset, buffer.from, buffer.count, buffer.type, &status);
            MPI_Barrier(MPI_COMM_WORLD);
        } else {
            name = "read alone";
            result = MPI_File_read_at(file, offset, buffer.from, buffer.count, buffer.type, &status);
        }
        say(number, step, name, outcome(file, result, &status, &buffer, is_read));
        if (is_read && !expected_read(&view, offset, &buffer)) printf("%d.%d rank %d: read wrong bytes\n", number, step, rank);
        if (!is_read) expect_write(&view, offset, &buffer);
        drop_buffer(&buffer);
        /* What comes next may touch bytes of other ranks. */
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Offset bytes;
    MPI_File_get_size(file, &bytes);
    MPI_File_close(&file);
    MPI_Type_free(&view.tile);
    uint64_t hash = digest(1, &bytes, sizeof bytes);
    if (rank == 0) {
        static unsigned char all[2 * FILE_BYTES];
        int fd = open(path, O_RDONLY);
        ssize_t got = read(fd, all, sizeof all);
        close(fd);
        int wrong = 0;
        for (ssize_t i = 0; i < got; i++) {
            if (!written[i]) all[i] = 0;
            else if (all[i] != image[i] && !wrong++) printf("%d: wrong byte at %zd of the file\n", number, i);
        }
        hash = digest(hash, all, (size_t)got);
    }
    say(number, steps, "file", hash);
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    take_short_slices();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Type_contiguous(3, MPI_INT, &triple);
    MPI_Type_commit(&triple);
    int first = atoi(argv[2]), number = atoi(argv[3]);
    for (int i = 0; i < number; i++) run_case(argv[1], first + i);
    MPI_Type_free(&triple);
    MPI_Finalize();
    return 0;
}
