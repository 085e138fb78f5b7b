//! Is there an order of all operations that explains all that clients were told?
//!
//! The search of Wing and Gong (1993) with the memory of Lowe (2017): an
//! operation may come next if none that is still to come was answered before it
//! was called. The whole tree is one object, so a rename has to happen at both
//! of its ends at once. Operations that change nothing are taken as soon as they
//! fit, which is never a loss; only changes are tried in all orders. Names are
//! bound to inode numbers that are never used twice, so wrong orders are
//! noticed soon.

use super::history::{Action, Call, Outcome, Texts, Thing};
use super::model::{Tree, apply, holds, is_dir, place};
use forebay_core::path::TreePath;
use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{Hash, Hasher};

/// States that one search looks at, before it gives up.
const MAX_STATES: usize = 4_000_000;

/// Something that has to find its place in the order.
enum Item<'a> {
    /// A change, with what it made.
    Change(&'a Call, Option<Thing>),
    /// A change that nobody was told of: the power failed before. It has happened or not.
    Maybe(&'a Call, Option<Thing>),
    /// An operation that changed nothing.
    Look(&'a Call, &'a Outcome),
    /// A listing: each name was there or not at some moment of it, not all at the same one.
    List(&'a Call, Vec<Sight>),
    /// What is left in the end, or after a loss of power.
    Left(&'a Tree),
}

/// One thing that a listing says.
enum Sight {
    IsDir,
    /// This name in it.
    Is(Vec<u8>, Option<Thing>),
}

impl Sight {
    /// `dir` is where the path of the listing leads.
    fn fits(&self, dir: &TreePath, tree: &Tree) -> bool {
        match self {
            Sight::IsDir => is_dir(tree, dir),
            Sight::Is(name, thing) => tree.get(&dir.join(name)) == thing.as_ref(),
        }
    }
}

/// An item with its interval.
struct Span<'a> {
    called: u64,
    answered: u64,
    item: Item<'a>,
}

/// Why no order was found.
pub(super) struct Unexplained {
    pub(super) detail: String,
    pub(super) paths: Vec<TreePath>,
}

#[derive(Clone)]
struct State {
    /// Per client: how many of its operations have their place.
    at: Vec<usize>,
    /// Per client: which sights of the listing at hand were found.
    found: Vec<u64>,
    tree: Tree,
}

struct Search<'a> {
    texts: &'a Texts,
    ended: &'a BTreeMap<usize, u64>,
    clients: Vec<Vec<Span<'a>>>,
    visited: HashSet<u64>,
    /// The state in which most operations had their place.
    best: Option<State>,
}

/// What is there at one moment, which is not before all that was answered before `after`. In the end that is everything. A
/// loss of power leaves the tree of an earlier moment, but nothing is undone of what was durable then.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    pub(super) tree: &'a Tree,
    pub(super) after: u64,
}

/// Explains the `calls`, before which `first` was there, and what is `left` of them. `made` says what a call made, and
/// `texts` where symbolic links lead. Clients that have `ended` with a loss of power may have done nothing of what they were
/// told at that moment or later: all of it, or a suffix.
pub(super) fn explain(
    calls: &[Call],
    first: &Tree,
    left: Option<Left<'_>>,
    ended: &BTreeMap<usize, u64>,
    texts: &Texts,
    made: impl Fn(&Call) -> Option<Thing>,
) -> Result<(), Unexplained> {
    let names = all_names(calls);
    let count = calls.iter().map(|c| c.client + 1).max().unwrap_or(0);
    let mut clients: Vec<Vec<Span>> = (0..=count).map(|_| Vec::new()).collect();
    for call in calls {
        let Some((answered, outcome)) = &call.answered else {
            clients[call.client].push(Span {
                called: call.called,
                answered: u64::MAX,
                item: Item::Maybe(call, made(call)),
            });
            continue;
        };
        clients[call.client].push(Span {
            called: call.called,
            answered: *answered,
            item: item(call, outcome, made(call), &names),
        });
    }
    clients[count].extend(left.map(|left| Span {
        called: left.after,
        answered: u64::MAX,
        item: Item::Left(left.tree),
    }));
    let start = State {
        at: vec![0; clients.len()],
        found: vec![0; clients.len()],
        tree: first.clone(),
    };
    let mut search = Search {
        texts,
        ended,
        clients,
        visited: HashSet::new(),
        best: None,
    };
    if search.find(start) {
        return Ok(());
    }
    Err(search.unexplained())
}

/// Each name that any path of the history ends in or passes.
fn all_names(calls: &[Call]) -> BTreeSet<Vec<u8>> {
    let paths = calls.iter().flat_map(|c| c.action.paths());
    let mut names: BTreeSet<_> = paths
        .flat_map(|p| p.components().map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    // What is made through a link has its name from there.
    for call in calls {
        if let Action::Symlink(text, _) = &call.action {
            names.extend(text.split(|b| *b == b'/').map(<[u8]>::to_vec));
        }
    }
    names.retain(|name| !matches!(&name[..], b"" | b"." | b".."));
    names
}

fn item<'a>(
    call: &'a Call,
    outcome: &'a Outcome,
    made: Option<Thing>,
    names: &BTreeSet<Vec<u8>>,
) -> Item<'a> {
    let opened_other = |ino: u64| {
        matches!(call.action, Action::Truncate(..))
            || matches!(call.action, Action::Create(_, flags) if flags & libc::O_EXCL == 0)
                && made.is_none_or(|m| m.ino != ino)
    };
    match outcome {
        // Carried out, but what it made was gone before the answer could be given; it made nothing where it has
        // opened what was there.
        Outcome::Errno(libc::ESTALE) if made.is_some() => Item::Change(call, made),
        // An earlier try of it was carried out, and it could not be opened now.
        Outcome::Failed {
            after_all: true, ..
        } if made.is_some() => Item::Change(call, made),
        Outcome::Failed { .. }
        | Outcome::Errno(_)
        | Outcome::Seen(_)
        | Outcome::Text(_)
        | Outcome::Outside => Item::Look(call, outcome),
        Outcome::Opened(ino) if opened_other(*ino) => Item::Look(call, outcome),
        Outcome::Done | Outcome::Opened(_) => Item::Change(call, made),
        Outcome::Listed(entries, last) => {
            let Action::List(_, after, _) = &call.action else {
                return Item::Look(call, outcome);
            };
            // A page says something of the names between the one that it follows and its last one.
            let is_told = |name: &Vec<u8>| {
                after.as_ref().is_none_or(|after| after < name)
                    && last.as_ref().is_none_or(|last| name <= last)
            };
            let mut sights = vec![Sight::IsDir];
            let listed = |name: &[u8]| entries.iter().find(|(n, _)| n == name).map(|(_, t)| *t);
            for name in names.iter().filter(|name| is_told(name)) {
                sights.push(Sight::Is(name.clone(), listed(name)));
            }
            let strangers = entries.iter().filter(|(n, _)| !names.contains(n));
            sights.extend(strangers.map(|(n, t)| Sight::Is(n.clone(), Some(*t))));
            Item::List(call, sights)
        }
    }
}

impl<'a> Search<'a> {
    /// May all that is still to come of this client be undone?
    fn may_be_undone(&self, state: &State, client: usize) -> bool {
        let span = self.pending(state, client);
        let from = self.ended.get(&client);
        span.zip(from)
            .is_some_and(|(span, from)| span.answered >= *from)
    }

    fn pending(&self, state: &State, client: usize) -> Option<&Span<'a>> {
        self.clients[client].get(state.at[client])
    }

    /// Clients whose pending operation may come next.
    fn open(&self, state: &State) -> Vec<usize> {
        let all = || 0..self.clients.len();
        let first_answer = all()
            .filter_map(|c| self.pending(state, c))
            .map(|s| s.answered)
            .min();
        all()
            .filter(|c| {
                let span = self.pending(state, *c);
                span.is_some_and(|s| first_answer.is_none_or(|a| s.called <= a))
            })
            .collect()
    }

    /// Gives their place to all that change nothing and fit now.
    fn take_looks(&self, state: &mut State) {
        loop {
            let mut more = false;
            for client in self.open(state) {
                let Some(span) = self.pending(state, client) else {
                    continue;
                };
                let fits = match &span.item {
                    Item::Change(..) | Item::Maybe(..) => false,
                    Item::Look(call, outcome) => holds(call, outcome, &state.tree, self.texts),
                    Item::Left(tree) => **tree == state.tree,
                    Item::List(call, sights) => {
                        let path = &call.action.paths()[0];
                        let dir = place(&state.tree, self.texts, path, true);
                        for (i, sight) in sights.iter().enumerate() {
                            if dir.as_ref().is_ok_and(|dir| sight.fits(dir, &state.tree)) {
                                state.found[client] |= 1 << i;
                            }
                        }
                        state.found[client].count_ones() as usize == sights.len()
                    }
                };
                if fits {
                    state.at[client] += 1;
                    state.found[client] = 0;
                    more = true;
                }
            }
            if !more {
                return;
            }
        }
    }

    fn find(&mut self, mut state: State) -> bool {
        self.take_looks(&mut state);
        let is_done = |client| {
            let span = self.pending(&state, client);
            span.is_none_or(|s| matches!(s.item, Item::Maybe(..)))
                || self.may_be_undone(&state, client)
        };
        if (0..self.clients.len()).all(is_done) {
            return true;
        }
        let placed = |s: &State| s.at.iter().sum::<usize>();
        if self
            .best
            .as_ref()
            .is_none_or(|b| placed(b) < placed(&state))
        {
            self.best = Some(state.clone());
        }
        let mut hasher = DefaultHasher::new();
        (&state.at, &state.found, &state.tree).hash(&mut hasher);
        if self.visited.len() >= MAX_STATES || !self.visited.insert(hasher.finish()) {
            return false;
        }
        for client in self.open(&state) {
            let Some(Item::Change(call, made) | Item::Maybe(call, made)) =
                self.pending(&state, client).map(|s| &s.item)
            else {
                continue;
            };
            let Some(tree) = apply(call, *made, &state.tree, self.texts) else {
                continue;
            };
            let mut next = State {
                tree,
                ..state.clone()
            };
            next.at[client] += 1;
            if self.find(next) {
                return true;
            }
        }
        for client in 0..self.clients.len() {
            if self.may_be_undone(&state, client) {
                let mut next = state.clone();
                next.at[client] = self.clients[client].len();
                next.found[client] = 0;
                if self.find(next) {
                    return true;
                }
            }
        }
        false
    }

    /// What stood in the way in the state that came farthest.
    fn unexplained(self) -> Unexplained {
        let mut detail = String::new();
        let mut paths = Vec::new();
        if self.visited.len() >= MAX_STATES {
            detail += "(the search was given up, it had too many orders to try)\n";
        }
        let Some(best) = &self.best else {
            return Unexplained { detail, paths };
        };
        detail += "the longest order that fits leads to this tree:\n";
        for (path, thing) in &best.tree {
            detail += &format!("    {path} = {thing}\n");
        }
        detail += "and none of these fits next:\n";
        for client in self.open(best) {
            match self.pending(best, client).map(|s| &s.item) {
                Some(Item::Left(tree)) => {
                    detail += "    what the tables hold in the end, or after a loss of power:\n";
                    for (path, thing) in *tree {
                        detail += &format!("        {path} = {thing}\n");
                    }
                    let differs = |p: &&TreePath| tree.get(*p) != best.tree.get(*p);
                    paths.extend(tree.keys().chain(best.tree.keys()).filter(differs).cloned());
                }
                Some(
                    Item::Change(call, _)
                    | Item::Maybe(call, _)
                    | Item::Look(call, _)
                    | Item::List(call, _),
                ) => {
                    if let Some((_, outcome)) = &call.answered {
                        detail +=
                            &format!("    client {}: {} -> {outcome}\n", call.client, call.action);
                    }
                    paths.extend(call.action.paths());
                }
                None => {}
            }
        }
        paths.retain(|p| !p.is_root());
        Unexplained { detail, paths }
    }
}
