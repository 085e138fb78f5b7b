//! `forebay doctor`: says what works on this node, what does not, and how to mend it.

use super::tell;
use crate::cli::{self, exit};
use crate::error::Fault;
use crate::looks;
use forebay_core::doors::{Diagnosis, diagnose};
use forebay_report::text::printable;
use serde_json::json;

/// Runs the verb.
pub fn doctor(args: &cli::DoctorArgs) -> Result<u8, Fault> {
    let facts = looks::facts(args.buffer.as_deref(), args.storage.as_deref());
    let diagnosis = diagnose(&facts);
    tell(&match args.json {
        true => format!("{:#}\n", in_json(&diagnosis)),
        false => text(&diagnosis),
    })?;
    Ok(match diagnosis.works() {
        true => exit::OK,
        false => exit::FAILURE,
    })
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for check in &diagnosis.checks {
        text += &format!(
            "{:<8} {:<12} {}\n",
            check.health.in_words(),
            check.about.in_words(),
            printable(check.found.as_bytes())
        );
        if let Some(remedy) = &check.remedy {
            text += &format!("{:<21} to mend it: {remedy}\n", "");
        }
    }
    text + &match &diagnosis.choice {
        Ok(choice) => format!(
            "--via auto takes the {}: {}\n",
            cli::door_name(choice.door),
            printable(choice.reason.as_bytes())
        ),
        Err(why) => format!(
            "no way for programs into a buffer: {}\n",
            printable(why.as_bytes())
        ),
    }
}

fn in_json(diagnosis: &Diagnosis) -> serde_json::Value {
    let checks = diagnosis.checks.iter().map(|check| {
        json!({
            "about": check.about.in_words(),
            "state": check.health.in_words(),
            "found": check.found,
            "remedy": check.remedy,
        })
    });
    let choice = diagnosis.choice.as_ref();
    json!({
        "works": diagnosis.works(),
        "via": choice.ok().map(|choice| cli::door_name(choice.door)),
        "reason": choice.map_or_else(String::clone, |choice| choice.reason.clone()),
        "checks": checks.collect::<Vec<_>>(),
    })
}
