//! The mover's ground under a real bridge.

use crate::namespace::State;
use crate::{ServerHandle, follow};
use forebay_core::ops::Effect;
use forebay_core::table::{Change, Tables};
use forebay_mover::{Ground, Halt, Namespace};
use forebay_objects::Objects;
use forebay_pfs::Lower;
use std::path::Path;

impl Ground for ServerHandle {
    fn objects(&self) -> &Objects {
        &self.objects
    }

    fn lower(&self) -> &Lower {
        &self.lower
    }

    fn instance(&self) -> &Path {
        self.instance_dir()
    }

    fn exclusively(
        &self,
        work: &mut dyn FnMut(&mut dyn Namespace) -> Result<(), Halt>,
    ) -> Result<(), Halt> {
        let mut state = self.namespace.exclusive();
        let mut alone = Alone {
            server: self,
            state: &mut state,
            effects: Vec::new(),
        };
        let outcome = work(&mut alone);
        let effects = std::mem::take(&mut alone.effects);
        drop(state);
        // Marks stand for it until it is done, so it can wait for the lock to be free: labels are written
        // from the tables, under the lock of readers.
        follow::follow_up(self, &effects);
        outcome
    }
}

/// The namespace under the lock that nobody else holds.
struct Alone<'s> {
    server: &'s ServerHandle,
    state: &'s mut State,
    effects: Vec<Effect>,
}

impl Namespace for Alone<'_> {
    fn tables(&self) -> &dyn Tables {
        self.server.namespace.tables()
    }

    fn next_version(&self) -> u64 {
        self.server.namespace.next_version()
    }

    fn commit(&mut self, batch: Vec<Change>, effects: Vec<Effect>) -> Result<(), Halt> {
        if batch.is_empty() {
            return Ok(());
        }
        self.server.namespace.lower_changed();
        let changed = batch.clone();
        self.server.namespace.commit_alone(self.state, batch)?;
        self.server.wake_for(&changed);
        self.effects.extend(effects);
        Ok(())
    }

    fn forbid_late_grants(&mut self) {
        self.server.namespace.lower_changed();
        self.server.lanes.forbid_late_opens();
    }
}
