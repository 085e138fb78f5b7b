//! Errors as the user sees them: one line, a hint, and with `-v` the chain of causes.

use forebay_admin::AdminError;
use std::fmt;

/// What went wrong and what to do about it.
#[derive(Debug)]
pub struct Fault {
    /// One line: path, operation, cause.
    pub message: String,
    /// What the user can do.
    pub hint: Option<String>,
    /// The cause, which `-v` shows.
    pub cause: Option<anyhow::Error>,
}

/// A fault without hint or cause.
pub fn fault(message: impl Into<String>) -> Fault {
    Fault {
        message: message.into(),
        hint: None,
        cause: None,
    }
}

impl Fault {
    /// Adds a hint.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the cause.
    pub fn because(mut self, cause: impl Into<anyhow::Error>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Prints the fault on standard error, with `verbose` including the causes.
    pub fn tell(&self, verbose: bool) {
        eprintln!("forebay: {}", self.message);
        if verbose && let Some(cause) = &self.cause {
            for link in cause.chain() {
                eprintln!("  because: {link}");
            }
        }
        if let Some(hint) = &self.hint {
            eprintln!("  hint: {hint}");
        }
    }
}

impl From<AdminError> for Fault {
    fn from(e: AdminError) -> Self {
        let fault = fault(e.to_string());
        let fault = match e.is_loss() {
            true => fault.hint("`forebay status` shows which bridges run"),
            false => fault,
        };
        fault.because(e)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
