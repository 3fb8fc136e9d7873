//! One name over several models, of which the mover's rating chooses.
//!
//! An ensemble is a TOML file beside its members:
//!
//! ```toml
//! name = "maia1"
//! interpolate = false # true: between the two nearest members
//!
//! [[member]]
//! rating = 1150
//! file = "maia-1100.onnx" # from this file's folder
//!
//! [[member]]
//! rating = 1250
//! file = "maia-1200.onnx"
//! ```

use std::path::{Path, PathBuf};

use serde::Deserialize;
use zeitnot_encoding::{Conditions, encodings::ASSUMED_RATING};

use crate::InferenceError;

/// Most members of one ensemble.
const MOST: usize = 64;

/// One name over several models.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ensemble {
    /// Name it is served by.
    pub name: String,
    /// Its version.
    #[serde(default = "first_version")]
    pub version: String,
    /// Whether the answers of the two nearest members are mixed, by their distance from the rating.
    #[serde(default)]
    pub interpolate: bool,
    /// The models, by rating, lowest first.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
}

/// A model of an ensemble.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The rating it is made for.
    pub rating: u16,
    /// Its file; read from a file, the path begins at the ensemble's folder.
    pub file: PathBuf,
}

/// A member's part in an answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Place among the members.
    pub member: usize,
    /// From 0 to 1; the weights of an answer sum to 1.
    pub weight: f32,
}

/// The rating by which members are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenBy {
    /// The rating.
    pub rating: u16,
    /// What stood in when the mover's rating is unknown, in words.
    pub assumed: Option<&'static str>,
}

impl ChosenBy {
    /// The mover's rating; unknown, the opponent's stands in, or 1500 for both.
    pub fn of(conditions: &Conditions) -> Self {
        match (conditions.mover_rating, conditions.opponent_rating) {
            (Some(rating), _) => ChosenBy { rating, assumed: None },
            (None, Some(rating)) => ChosenBy { rating, assumed: Some("mover.rating: assumed to be the opponent's") },
            (None, None) => ChosenBy { rating: ASSUMED_RATING, assumed: Some("mover.rating: assumed to be 1500") },
        }
    }
}

impl Ensemble {
    /// Whether a path names an ensemble and not a model.
    pub fn is_named_by(path: &Path) -> bool {
        path.extension().is_some_and(|end| end == "toml")
    }

    /// Reads a file; the members' paths then begin where the file's does.
    ///
    /// # Errors
    ///
    /// [`InferenceError::Read`], and [`InferenceError::Model`] that says what is wrong, with the line.
    pub fn read(path: &Path) -> Result<Self, InferenceError> {
        let file = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|source| InferenceError::Read { file: file.clone(), source })?;
        let mut ensemble = Self::parse(&text).map_err(|problem| InferenceError::Model { file, problem })?;
        let folder = path.parent().unwrap_or(Path::new(""));
        ensemble.members.iter_mut().for_each(|member| member.file = folder.join(&member.file));
        Ok(ensemble)
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut ensemble: Ensemble = toml::from_str(text).map_err(|error| error.to_string())?;
        if ensemble.name.is_empty() {
            return Err("name is empty".to_owned());
        }
        if !(1..=MOST).contains(&ensemble.members.len()) {
            return Err(format!("{} members are not between 1 and {MOST}", ensemble.members.len()));
        }
        ensemble.members.sort_by_key(|member| member.rating);
        let twice = ensemble.members.iter().zip(ensemble.members.iter().skip(1)).find(|(a, b)| a.rating == b.rating);
        match twice {
            Some((first, second)) => {
                let (first, second) = (first.file.display(), second.file.display());
                Err(format!("{first} and {second} are for the same rating"))
            }
            None => Ok(ensemble),
        }
    }

    /// Who answers for a rating, the nearest member first. Half way between two, the higher one is the nearest.
    pub fn choose(&self, rating: u16) -> Vec<Share> {
        let above = self.members.iter().position(|member| member.rating > rating);
        let whole = |member| vec![Share { member, weight: 1.0 }];
        let (low, high) = match above {
            Some(0) => return whole(0),
            Some(high) => (high - 1, high),
            None => return whole(self.members.len().saturating_sub(1)),
        };
        let at = |place: usize| self.members.get(place).map_or(0.0, |member| f32::from(member.rating));
        let weight = (f32::from(rating) - at(low)) / (at(high) - at(low));
        let [low, high] = [Share { member: low, weight: 1.0 - weight }, Share { member: high, weight }];
        let (near, far) = if high.weight >= 0.5 { (high, low) } else { (low, high) };
        if self.interpolate && far.weight > 0.0 { vec![near, far] } else { whole(near.member) }
    }

    /// The ratings for which a member is the nearest: lowest and highest; none where there is no bound.
    pub fn range(&self, member: usize) -> (Option<u16>, Option<u16>) {
        let at = |place: usize| self.members.get(place).map(|member| u32::from(member.rating));
        let middle = |low: usize, high: usize| {
            let sum = at(low)? + at(high)?;
            u16::try_from(sum.div_ceil(2)).ok()
        };
        let lowest = member.checked_sub(1).and_then(|below| middle(below, member));
        let highest = middle(member, member + 1).map(|middle| middle.saturating_sub(1));
        (lowest, highest)
    }
}

fn first_version() -> String {
    "1".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ensemble(interpolate: bool) -> Ensemble {
        let text = format!(
            "name = \"a\"\ninterpolate = {interpolate}\n\
             [[member]]\nrating = 1500\nfile = \"b.onnx\"\n[[member]]\nrating = 1100\nfile = \"a.onnx\"\n\
             [[member]]\nrating = 1601\nfile = \"c.onnx\"\n"
        );
        Ensemble::parse(&text).unwrap()
    }

    fn chosen(interpolate: bool, rating: u16) -> Vec<(usize, f32)> {
        ensemble(interpolate).choose(rating).into_iter().map(|share| (share.member, share.weight)).collect()
    }

    #[test]
    fn the_nearest_member_answers() {
        let nearest = |rating| chosen(false, rating);
        let whole = |member| vec![(member, 1.0)];
        assert_eq!([0, 1100, 1299].map(nearest), [0, 0, 0].map(whole));
        assert_eq!([1300, 1500, 1550].map(nearest), [1, 1, 1].map(whole));
        assert_eq!([1551, 1601, 4000].map(nearest), [2, 2, 2].map(whole));
    }

    #[test]
    fn ranges_are_where_members_are_the_nearest() {
        let ensemble = ensemble(false);
        assert_eq!(
            [0, 1, 2].map(|member| ensemble.range(member)),
            [(None, Some(1299)), (Some(1300), Some(1550)), (Some(1551), None)]
        );
        for rating in 0..4000u16 {
            let nearest = ensemble.choose(rating)[0].member;
            let (low, high) = ensemble.range(nearest);
            assert!(low.is_none_or(|low| low <= rating) && high.is_none_or(|high| rating <= high), "{rating}");
        }
    }

    #[test]
    fn neighbours_share_by_distance_where_asked_for() {
        assert_eq!(chosen(true, 1200), [(0, 0.75), (1, 0.25)]);
        assert_eq!(chosen(true, 1400), [(1, 0.75), (0, 0.25)]);
        assert_eq!(chosen(true, 1500), [(1, 1.0)]);
        assert_eq!(chosen(true, 900), [(0, 1.0)]);
        assert_eq!(chosen(true, 2000), [(2, 1.0)]);
    }

    #[test]
    fn an_unknown_rating_is_the_opponents_or_1500() {
        let of = |mover_rating, opponent_rating| {
            ChosenBy::of(&Conditions { mover_rating, opponent_rating, ..Conditions::default() })
        };
        assert_eq!(of(Some(1), Some(2)), ChosenBy { rating: 1, assumed: None });
        assert_eq!(of(None, Some(2)).rating, 2);
        assert_eq!((of(None, None).rating, of(None, None).assumed.is_some()), (1500, true));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let problem = |text: &str| Ensemble::parse(text).unwrap_err();
        assert!(problem("name = \"a\"\nbanana = 1\n").contains("banana"));
        assert!(problem("name = \"a\"\nmember = []\n").contains("0 members"));
        assert!(problem("name = \"\"\n[[member]]\nrating = 1\nfile = \"a\"\n").contains("name is empty"));
        let member = "[[member]]\nrating = 1500\nfile = \"a.onnx\"\n";
        assert!(problem(&format!("name = \"a\"\n{member}{member}")).contains("for the same rating"));
        assert!(problem("name = \"a\"\n[[member]]\nrating = -1\nfile = \"a\"\n").contains("line 3"));
    }

    #[test]
    fn members_lie_beside_the_file() {
        let folder = std::env::temp_dir().join(format!("zeitnot-ensemble-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.toml");
        std::fs::write(&path, "name = \"a\"\n[[member]]\nrating = 1\nfile = \"b.onnx\"\n").unwrap();
        assert_eq!(Ensemble::read(&path).unwrap().members[0].file, folder.join("b.onnx"));
        assert!(Ensemble::is_named_by(&path) && !Ensemble::is_named_by(Path::new("a.onnx")));
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(Ensemble::read(&path).unwrap_err().to_string().contains("a.toml"));
    }
}
