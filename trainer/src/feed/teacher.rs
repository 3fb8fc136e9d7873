//! Networks whose probabilities are learnt beside the moves played.

use std::{path::PathBuf, str::FromStr};

use anyhow::{Result, anyhow};
use zeitnot_encoding::{Batch, LegalMoves, Situation, vocabulary};
use zeitnot_inference::{Device, Runtime, Session, SessionOptions};

/// Rating assumed of a mover whose rating is unknown, when teachers are told apart by rating.
const ASSUMED: u16 = 1500;

/// A teacher's file, and the rating it plays at when there are several: `maia.onnx` or `1500=maia.onnx`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TeacherFile {
    /// The rating.
    pub rating: u16,
    /// The ONNX file.
    pub path: PathBuf,
}

impl FromStr for TeacherFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            None => Ok(TeacherFile { rating: ASSUMED, path: text.into() }),
            Some((rating, path)) => match rating.parse() {
                Ok(rating) => Ok(TeacherFile { rating, path: path.into() }),
                Err(_) => Err(format!("`{rating}` is not a rating; write FILE or RATING=FILE")),
            },
        }
    }
}

impl std::fmt::Display for TeacherFile {
    /// Rating and file name, without the folder.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        write!(f, "{}={name}", self.rating)
    }
}

/// Teachers of one thread; each decision goes to the one nearest to the mover's rating, on whatever scale that is.
pub struct Teachers {
    members: Vec<(u16, Session)>,
}

impl Teachers {
    /// Opens the files.
    ///
    /// # Errors
    ///
    /// When one of them cannot be served.
    pub fn open(files: &[TeacherFile]) -> Result<Self> {
        let mut members = Vec::new();
        if !files.is_empty() {
            let runtime = Runtime::load(None)?;
            let options = SessionOptions { device: Device::Cpu, threads: 1 };
            for file in files {
                members.push((file.rating, Session::open(&runtime, &file.path, options)?));
            }
        }
        Ok(Teachers { members })
    }

    /// True when there is nobody to learn from.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Probabilities of the moves, f32 `[B, 4208]`, 0 for illegal moves; empty without teachers.
    ///
    /// # Errors
    ///
    /// When a teacher cannot be run, or answers with numbers that are not finite.
    pub fn probabilities(&mut self, situations: &[Situation]) -> Result<Vec<f32>> {
        if self.members.is_empty() {
            return Ok(Vec::new());
        }
        let mut probabilities = vec![0.0; situations.len() * vocabulary::SIZE];
        let ratings = self.members.iter().map(|(rating, _)| *rating).collect::<Vec<_>>();
        let nearest = situations.iter().map(|situation| nearest(&ratings, situation.conditions.mover_rating));
        let nearest = nearest.collect::<Vec<_>>();
        for (number, (_, session)) in self.members.iter_mut().enumerate() {
            let own = nearest.iter().zip(situations).zip(probabilities.chunks_exact_mut(vocabulary::SIZE));
            let own = own.filter(|((nearest, _), _)| **nearest == number).map(|((_, situation), row)| (situation, row));
            let own = own.collect::<Vec<_>>();
            if own.is_empty() {
                continue;
            }
            let batch = Batch::of(session.encoding(), own.iter().map(|(situation, _)| *situation));
            let answer = session.run(&batch)?;
            for (place, (situation, row)) in own.into_iter().enumerate() {
                let name = &session.metadata().name;
                let answer =
                    answer.row(place).ok_or_else(|| anyhow!("{name} answers with numbers that are not finite"))?;
                let legal = LegalMoves::of(&situation.position);
                for (&index, probability) in legal.indices().iter().zip(legal.probabilities(&answer.policy)) {
                    if let Some(cell) = row.get_mut(usize::from(index)) {
                        *cell = probability;
                    }
                }
            }
        }
        Ok(probabilities)
    }
}

/// The place of the rating nearest to the mover's.
fn nearest(ratings: &[u16], mover: Option<u16>) -> usize {
    let mover = mover.unwrap_or(ASSUMED);
    let distances = ratings.iter().map(|own| own.abs_diff(mover)).enumerate();
    distances.min_by_key(|&(_, distance)| distance).map_or(0, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mover_has_the_teacher_nearest_by_rating() {
        let ratings = [1100, 1500, 1900];
        let of = |mover| ratings[nearest(&ratings, mover)];
        assert_eq!(
            [of(Some(400)), of(Some(1299)), of(Some(1301)), of(Some(2800)), of(None)],
            [1100, 1100, 1500, 1900, 1500]
        );
    }

    #[test]
    fn a_teacher_is_a_file_with_or_without_a_rating() {
        let file = |text: &str| text.parse::<TeacherFile>();
        assert_eq!(file("1900=a/b.onnx"), Ok(TeacherFile { rating: 1900, path: "a/b.onnx".into() }));
        assert_eq!(file("b.onnx").unwrap().rating, 1500);
        assert!(file("strong=b.onnx").unwrap_err().contains("`strong` is not a rating"));
    }
}
