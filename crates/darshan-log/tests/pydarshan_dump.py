"""Prints what PyDarshan reads from the logs named on standard input, a line per value, as
tests/common/dump.rs prints what darshan-log reads. Floats are printed as their 64 bits."""

import sys

import numpy as np
from darshan.backend import cffi_backend as backend

ffi, lib = backend.ffi, backend.libdutil
ACCUMULATED = ("POSIX", "MPI-IO", "STDIO", "DFS", "DAOS")


def emit(*words):
    print(*words)


def bits(values):
    return " ".join(map(str, np.asarray(values, dtype=np.float64).view(np.uint64).tolist()))


def numbers(values):
    return " ".join(map(str, values))


def hexed(text):
    return text.encode("utf-8", "surrogateescape").hex() or "-"


def dump_job(log):
    job = backend.log_get_job(log)
    emit("job", job["uid"], job["start_time_sec"], job["start_time_nsec"], job["end_time_sec"],
         job["end_time_nsec"], job["nprocs"], job["jobid"])
    emit("format", job["log_ver"], bits([job["run_time"]]))
    for key, value in job["metadata"].items():
        emit("metadata", hexed(key), hexed(value))
    emit("exe", hexed(backend.log_get_exe(log)))
    for line in sorted(f"mount {hexed(path)} {hexed(kind)}" for path, kind in backend.log_get_mounts(log)):
        emit(line)
    for line in sorted(f"name {id} {hexed(name)}" for id, name in backend.log_get_name_records(log).items()):
        emit(line)


def records(log, name, kind):
    index = backend.log_get_modules(log)[name]["idx"]
    while True:
        buffer = ffi.new("void **")
        if lib.darshan_log_get_record(log["handle"], index, buffer) < 1:
            return
        yield buffer[0], ffi.cast(kind, buffer)[0]
        lib.darshan_free(buffer[0])


def array(pointer, count, dtype):
    return np.frombuffer(ffi.buffer(pointer, 8 * count), dtype=dtype).tolist() if count else []


def dump_counters(log, name, nprocs):
    kind = backend._structdefs[name]
    accumulator = None
    if name in ACCUMULATED:
        accumulator = ffi.new("darshan_accumulator *")
        lib.darshan_accumulator_create(backend.mod_name_to_idx(name), nprocs, accumulator)
    for pointer, record in records(log, name, kind):
        dump_counter_record(name, record)
        if accumulator:
            lib.darshan_accumulator_inject(accumulator[0], pointer, 1)
    if accumulator:
        metrics = ffi.new("struct darshan_derived_metrics *")
        total = ffi.new(kind.replace("**", "*"))
        lib.darshan_accumulator_emit(accumulator[0], metrics, total)
        lib.darshan_accumulator_destroy(accumulator[0])
        dump_metrics(name, metrics)
        print("sum", end=" ")
        dump_counter_record(name, total[0])


def dump_counter_record(name, record):
    extra = str(record.file_rec_id) if name in ("H5D", "PNETCDF_VAR") else "-"
    ints = np.frombuffer(ffi.buffer(record.counters), dtype=np.int64).tolist()
    floats = np.frombuffer(ffi.buffer(record.fcounters), dtype=np.float64)
    emit("record", name, record.base_rec.id, record.base_rec.rank, extra, numbers(ints), bits(floats))


def dump_metrics(name, m):
    emit("derived", name, m.total_bytes, m.unique_io_slowest_rank,
         bits([m.unique_io_total_time_by_slowest, m.unique_rw_only_time_by_slowest,
               m.unique_md_only_time_by_slowest, m.shared_io_total_time_by_slowest,
               m.agg_perf_by_slowest, m.agg_time_by_slowest]))
    for i in range(7):
        c = m.category_counters[i]
        emit("category", name, i, c.count, c.total_read_volume_bytes, c.total_write_volume_bytes,
             c.max_read_volume_bytes, c.max_write_volume_bytes, c.total_max_offset_bytes,
             c.max_offset_bytes, c.nprocs)


def dump_lustre(log):
    for _, record in records(log, "LUSTRE", backend._structdefs["LUSTRE"]):
        emit("lustre", record.base_rec.id, record.base_rec.rank, record.num_comps)
        for i in range(record.num_comps):
            component = record.comps[i]
            emit("component", numbers(array(component.counters, 7, np.int64)),
                 ffi.string(component.pool_name).hex() or "-")
        emit("osts", numbers(array(record.ost_ids, record.num_stripes, np.int64)))


def dump_heatmap(log):
    for _, record in records(log, "HEATMAP", backend._structdefs["HEATMAP"]):
        emit("heatmap", record.base_rec.id, record.base_rec.rank, bits([record.bin_width_seconds]), record.nbins)
        emit("written", numbers(array(record.write_bins, record.nbins, np.int64)))
        emit("read", numbers(array(record.read_bins, record.nbins, np.int64)))


def dump_dxt(log, name):
    for pointer, record in records(log, name, backend._structdefs[name]):
        emit("dxt", name, record.base_rec.id, record.base_rec.rank, record.shared_record,
             hexed(ffi.string(record.hostname).decode()), record.write_count, record.read_count)
        segments = ffi.cast("char *", pointer) + ffi.sizeof("struct dxt_file_record")
        count = record.write_count + record.read_count
        if count:
            emit("segments", numbers(array(segments, 4 * count, np.uint64)))


def dump_log(path):
    emit("log", path)
    log = backend.log_open(path)
    dump_job(log)
    nprocs = backend.log_get_job(log)["nprocs"]
    for name, module in backend.log_get_modules(log).items():
        emit("module", module["idx"], name, module["ver"], int(module["partial_flag"]), module["len"])
        if name == "LUSTRE":
            dump_lustre(log)
        elif name == "HEATMAP":
            dump_heatmap(log)
        elif name in ("DXT_POSIX", "DXT_MPIIO"):
            dump_dxt(log, name)
        elif name in backend._structdefs:
            dump_counters(log, name, nprocs)
    backend.log_close(log)
    emit("end")


def dump_names():
    for name in ("POSIX", "MPI-IO", "STDIO", "H5F", "H5D", "PNETCDF_FILE", "PNETCDF_VAR", "DFS", "DAOS"):
        emit("counters", name, numbers(backend.counter_names(name)))
        emit("fcounters", name, numbers(backend.fcounter_names(name)))
    emit("counters", "LUSTRE", numbers(backend.counter_names("LUSTRE_COMP")))


dump_names()
for line in sys.stdin:
    dump_log(line.rstrip("\n"))
