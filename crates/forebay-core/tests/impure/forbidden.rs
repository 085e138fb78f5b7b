//! What core's `clippy.toml` must refuse: every line that ends in `refused`, and no other. No target of this package;
//! `scripts/check-rules.sh` gives it to clippy and compares the lines.
#![deny(clippy::disallowed_types, clippy::disallowed_methods, clippy::disallowed_macros)]

pub fn clock() -> bool {
    let a = std::time::Instant::now(); // refused
    let b = std::time::SystemTime::now(); // refused
    let unit = std::time::Duration::from_secs(1);
    a.elapsed() > unit || b.elapsed().is_ok() // refused
}

pub fn threads() {
    std::thread::sleep(std::time::Duration::ZERO); // refused
    std::thread::scope(|_| ()); // refused
    let _ = std::sync::Arc::new(std::sync::Mutex::new(0)); // refused
    let _ = std::sync::RwLock::new(0); // refused
    let _ = std::sync::Condvar::new(); // refused
    let _ = std::sync::atomic::AtomicU64::new(0); // refused
    let _ = std::sync::OnceLock::<u8>::new(); // refused
    thread_local!(static OWN: u8 = const { 0 }); // refused
}

pub fn files(bytes: &[u8]) -> bool {
    let _ = std::fs::read("/etc/hostname"); // refused
    let _ = std::fs::File::open("/etc/hostname"); // refused
    let _ = std::fs::OpenOptions::new(); // refused
    let seen = std::path::Path::new("/etc").exists(); // refused
    seen && !bytes.is_empty()
}

pub fn sockets() {
    let _ = std::net::TcpStream::connect("localhost:1"); // refused
    let _ = std::os::unix::net::UnixStream::pair(); // refused
}

pub fn processes() {
    let _ = std::process::Command::new("true"); // refused
    let _ = std::process::id(); // refused
}

pub fn environment() {
    let _ = std::env::var_os("HOME"); // refused
    let _ = std::env::args(); // refused
    let _ = std::env::current_dir(); // refused
}

pub fn order() -> usize {
    let random = std::collections::HashMap::<u8, u8>::new(); // refused
    let random_too = std::collections::HashSet::<u8>::new(); // refused
    let sorted = std::collections::BTreeMap::<u8, u8>::new();
    random.len() + random_too.len() + sorted.len()
}

pub fn output() {
    println!("spoken"); // refused
    eprintln!("spoken"); // refused
    let _ = std::io::stdout(); // refused
}
