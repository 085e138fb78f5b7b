//! A bridge in the foreground, until SIGTERM: `bridge ROOT STORAGE [SOCKET]`.

use forebay_server::{Config, run};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(root), Some(storage)) = (args.next(), args.next()) else {
        return Err("usage: bridge ROOT STORAGE [SOCKET]".into());
    };
    let mut config = Config::new(&root, &storage)?;
    if let Some(socket) = args.next() {
        config.socket = socket;
    }
    run(config, |server| {
        println!("{}", server.info().socket.display())
    })?;
    Ok(())
}
