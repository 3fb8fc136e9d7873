//! An option that is set on the engine.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

/// Options that the pool itself sets, or that change what a position is.
const RESERVED: [&str; 3] = ["MultiPV", "UCI_Chess960", "UCI_Variant"];

/// An option and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOption {
    /// Its name, in which engines see no difference between great and small letters.
    pub name: String,
    /// Its value.
    pub value: String,
}

impl EngineOption {
    /// An option and its value.
    pub fn new(name: &str, value: &str) -> Self {
        EngineOption { name: name.to_owned(), value: value.to_owned() }
    }
}

impl FromStr for EngineOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("it is not like Name=Value")?;
        let option = EngineOption::new(name.trim(), value.trim());
        if option.name.is_empty() {
            return Err("it has no name".to_owned());
        }
        // A line break would begin another command to the engine.
        if text.chars().any(char::is_control) {
            return Err("it holds a control character".to_owned());
        }
        match RESERVED.iter().find(|reserved| reserved.eq_ignore_ascii_case(&option.name)) {
            Some(reserved) => Err(format!("{reserved} is not yours to set")),
            None => Ok(option),
        }
    }
}

impl fmt::Display for EngineOption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.name, self.value)
    }
}

impl Serialize for EngineOption {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The defaults, with those given in their place or after them; of two of one name the later counts.
pub(super) fn merged(given: &[EngineOption]) -> Vec<EngineOption> {
    let mut all = vec![EngineOption::new("Threads", "1"), EngineOption::new("Hash", "64")];
    for option in given {
        match all.iter_mut().find(|known| known.name.eq_ignore_ascii_case(&option.name)) {
            Some(known) => *known = option.clone(),
            None => all.push(option.clone()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_those_of_the_pool_refused() {
        assert_eq!("Skill Level=5".parse(), Ok(EngineOption::new("Skill Level", "5")));
        assert_eq!("SyzygyPath=/a=b".parse(), Ok(EngineOption::new("SyzygyPath", "/a=b")));
        for bad in ["Hash", "=5", "multipv=4", "Hash=1\nquit"] {
            assert!(bad.parse::<EngineOption>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_is_given_replaces_the_default_of_its_name_alone() {
        let given = ["hash=8", "Ponder=false", "hash=9"].map(|text| text.parse().unwrap());
        let texts = merged(&given).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts, ["Threads=1", "hash=9", "Ponder=false"]);
    }
}
