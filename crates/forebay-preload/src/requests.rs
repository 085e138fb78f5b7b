//! The requests that several hooks make to the bridge.

use forebay_hook::kernel::OwnFd;
use forebay_link::{Answer, Config, Fail, Link};
use forebay_wire::{Attr, Base, ObjectId, Op, ReplyKind, Request};

use crate::locate::Target;

/// The connections of this process to its bridge.
pub static LINK: Link = Link::new();

/// [`Link::ask`] of this process.
pub fn ask(
    config: &Config,
    request: &mut Request<'_>,
    cloexec: bool,
    answer: &mut Answer,
) -> Result<(), Fail> {
    LINK.ask(config, request, cloexec, answer)
}

/// Attributes of the object.
pub fn stat(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<Attr, Fail> {
    if target.base == Base::Root
        && let Some(attr) = LINK.look(target.config, target.rel)
    {
        return Ok(target.config.devices().shown_of(attr));
    }
    let mut request = target.request(Op::Stat);
    request.arg0 = flags;
    ask(target.config, &mut request, true, answer)?;
    if answer.kind() != ReplyKind::Attr {
        return Err(Fail::Errno(libc::EIO));
    }
    let attr = Attr::decode(answer.body()).map_err(|_| libc::EIO)?;
    Ok(target.config.devices().shown_of(attr))
}

/// The inode number that an open copy shows, which is this link of this object. `None`: its own.
pub fn copy_of(config: &Config, object: ObjectId, link: u32) -> Option<u64> {
    let mut answer = Answer::new();
    let mut request = Request {
        base1: Base::Object(object.0),
        arg1: link,
        ..Request::new(Op::Stat)
    };
    ask(config, &mut request, true, &mut answer).ok()?;
    let attr = Attr::decode(answer.body()).ok()?;
    (attr.copy_of != 0).then_some(attr.copy_of)
}

/// An `O_PATH` descriptor of the object.
pub fn resolve(target: &Target<'_>, flags: u32, answer: &mut Answer) -> Result<OwnFd, Fail> {
    let mut request = target.request(Op::Resolve);
    request.arg0 = flags;
    ask(target.config, &mut request, true, answer)?;
    Ok(answer.take_fd()?)
}
