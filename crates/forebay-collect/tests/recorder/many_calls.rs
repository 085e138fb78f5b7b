//! Random calls, counted by the recorder, by a model that follows Darshan's definitions, and by strace.

use std::collections::HashMap;
use std::process::Command;

use forebay_count::posix as p;
use forebay_testkit::built::Library;

use crate::run::Place;

const SEED: u64 = 4242424242;
const FILES: usize = 16;

/// The state of a descriptor in the model.
#[derive(Clone, Copy)]
struct Descriptor {
    file: usize,
    position: i64,
    append: bool,
}

/// A file, and its counters by the definitions.
#[derive(Default)]
struct Model {
    size: i64,
    ints: HashMap<usize, i64>,
    last: [i64; 2],
    direction: usize,
    accesses: Vec<(i64, i64)>,
    strides: Vec<(i64, i64)>,
}

impl Model {
    fn add(&mut self, counter: usize, n: i64) {
        *self.ints.entry(counter).or_default() += n;
    }

    fn transfer(&mut self, writes: bool, at: i64, n: i64, aligned: bool) {
        let pick = |read, write| if writes { write } else { read };
        self.add(pick(p::READS, p::WRITES), 1);
        self.add(pick(p::BYTES_READ, p::BYTES_WRITTEN), n);
        let bucket = match n {
            0..=100 => 0,
            101..=1024 => 1,
            1025..=10240 => 2,
            _ => unreachable!("no call is larger"),
        };
        self.add(pick(p::SIZE_READ, p::SIZE_WRITE) + bucket, 1);
        let most = self
            .ints
            .entry(pick(p::MAX_BYTE_READ, p::MAX_BYTE_WRITTEN))
            .or_default();
        *most = (*most).max(at + n - 1);
        let last = self.last[usize::from(writes)];
        if at > last {
            self.add(pick(p::SEQ_READS, p::SEQ_WRITES), 1);
            if last != 0 && at - last > 1 {
                note(&mut self.strides, at - last - 1);
            }
        }
        if at == last + 1 {
            self.add(pick(p::CONSEC_READS, p::CONSEC_WRITES), 1);
        }
        self.last[usize::from(writes)] = at + n - 1;
        let direction = pick(1, 2);
        if self.direction + direction == 3 {
            self.add(p::RW_SWITCHES, 1);
        }
        self.direction = direction;
        if !aligned {
            self.add(p::MEM_NOT_ALIGNED, 1);
        }
        if at % 4096 != 0 {
            self.add(p::FILE_NOT_ALIGNED, 1);
        }
        note(&mut self.accesses, n);
    }
}

/// Counts a value, if it is among the first 32.
fn note(values: &mut Vec<(i64, i64)>, value: i64) {
    match values.iter().position(|v| v.0 == value) {
        Some(i) => values[i].1 += 1,
        None if values.len() < 32 => values.push((value, 1)),
        None => {}
    }
}

/// The calls of `many_calls.c`.
fn model(calls: u64) -> Vec<Model> {
    let mut files: Vec<Model> = (0..FILES).map(|_| Model::default()).collect();
    let mut slots: [Option<Descriptor>; 8] = [None; 8];
    let mut state = SEED;
    for _ in 0..calls {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let r = state;
        let what = (r >> 8) % 18;
        let size = if !(r >> 12).is_multiple_of(4) {
            [0, 1, 8, 100, 512, 4096][(r >> 16) as usize % 6]
        } else {
            (r >> 16) % 5000
        };
        let (n, at, shift) = (size as i64, ((r >> 32) % 65536) as i64, (r >> 48) % 2);
        let slot = &mut slots[(r % 8) as usize];
        let Some(fd) = slot.as_mut() else {
            let file = (r >> 40) as usize % FILES;
            *slot = Some(Descriptor {
                file,
                position: 0,
                append: (r >> 52).is_multiple_of(4),
            });
            files[file].add(p::OPENS, 1);
            continue;
        };
        let file = &mut files[fd.file];
        let available = |from: i64, size: i64| (size - from).clamp(0, n);
        match what {
            0 => *slot = None,
            1 | 2 => {
                fd.position = at;
                file.add(p::SEEKS, 1);
            }
            3 => file.add(p::STATS, 1),
            4..=6 => {
                let got = available(fd.position, file.size);
                file.transfer(false, fd.position, got, shift == 0);
                fd.position += got;
            }
            7..=9 | 17 => {
                let start = if fd.append && n > 0 {
                    file.size
                } else {
                    fd.position
                };
                // The second part of a vector lies at the shifted address.
                file.transfer(true, start, n, shift == 0);
                fd.position = start + n;
                file.size = file.size.max(if n > 0 { start + n } else { 0 });
            }
            10..=12 | 16 => {
                let got = available(at, file.size);
                file.transfer(false, at, got, shift == 0);
            }
            _ => {
                // Linux appends, whatever the offset says.
                let start = if fd.append && n > 0 { file.size } else { at };
                file.transfer(true, start, n, shift == 0);
                file.size = file.size.max(if n > 0 { start + n } else { 0 });
            }
        }
    }
    files
}

/// The four most frequent, the larger first among equals, as counters.
fn common(mut values: Vec<(i64, i64)>, at: usize, counts: usize) -> Vec<(usize, i64)> {
    values.sort_by_key(|v| std::cmp::Reverse((v.1, v.0)));
    let four = values.into_iter().take(4).enumerate();
    four.flat_map(|(i, (value, n))| [(at + i, value), (counts + i, n)])
        .collect()
}

#[test]
fn two_million_random_calls_give_the_counters_of_a_model() {
    const CALLS: u64 = 2_000_000;
    let place = Place::new("many");
    let program = place.compile("many_calls");
    place.record(
        &program,
        [place.text("data"), CALLS.to_string(), SEED.to_string()],
    );
    let image = place.image_of(&program);
    for (n, model) in model(CALLS).into_iter().enumerate() {
        let file = &image.posix[&place.text(&format!("data/f{n}"))];
        let mut expected = vec![0; p::INTS];
        for (counter, value) in model.ints {
            expected[counter] = value;
        }
        for (counter, value) in common(model.accesses, p::ACCESS, p::ACCESS_COUNT) {
            expected[counter] = value;
        }
        for (counter, value) in common(model.strides, p::STRIDE, p::STRIDE_COUNT) {
            expected[counter] = value;
        }
        expected[p::MODE] = 0o600;
        expected[p::MEM_ALIGNMENT] = 8;
        expected[p::FILE_ALIGNMENT] = 4096;
        let mut counted = file.ints.clone();
        // The model does not know which access took longest.
        counted[p::MAX_READ_TIME_SIZE] = 0;
        counted[p::MAX_WRITE_TIME_SIZE] = 0;
        assert_eq!(counted, expected, "f{n}");
    }
}

#[test]
fn strace_sees_the_same_calls_and_bytes() {
    const CALLS: u64 = 20_000;
    let place = Place::new("strace");
    let program = place.compile("many_calls");
    let works = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|s| s.success());
    forebay_testkit::skip_unless!(works, "strace does not work here");
    let trace = place.path("trace");
    let (data, calls, seed) = (place.text("data"), CALLS.to_string(), SEED.to_string());
    let preload = Library::Recorder.path();
    let status = Command::new("timeout")
        .arg("100")
        .arg("strace")
        .args([
            "-y",
            "-s",
            "0",
            "-e",
            "trace=read,write,pread64,pwrite64,preadv,writev",
        ])
        .arg("-o")
        .arg(&trace)
        .arg(format!("--env=LD_PRELOAD={}", preload.display()))
        .args([
            program.as_os_str(),
            data.as_ref(),
            calls.as_ref(),
            seed.as_ref(),
        ])
        .env(forebay_count::ENV_RECORD_DIR, place.tables())
        .status()
        .expect("timeout runs");
    assert!(status.success());
    let mut seen: HashMap<String, [i64; 4]> = HashMap::new();
    for line in std::fs::read_to_string(&trace).expect("a trace").lines() {
        let parts = line.split_once('(').zip(line.rsplit_once(" = "));
        let Some(((call, rest), (_, result))) = parts else {
            continue;
        };
        let file = rest
            .split_once('<')
            .and_then(|(_, r)| r.split_once('>'))
            .map(|(f, _)| f);
        let Some(file) = file.filter(|f| f.starts_with(&data)) else {
            continue;
        };
        let moved: i64 = result.trim().parse().expect("a number");
        let counts = seen.entry(file.to_owned()).or_default();
        let side = usize::from(call.contains("write"));
        counts[side] += 1;
        counts[2 + side] += moved;
    }
    let image = place.image_of(&program);
    assert_eq!(seen.len(), FILES);
    for (name, counts) in seen {
        let ints = &image.posix[&name].ints;
        let counted = [p::READS, p::WRITES, p::BYTES_READ, p::BYTES_WRITTEN].map(|i| ints[i]);
        assert_eq!(counted, counts, "{name}");
    }
}
