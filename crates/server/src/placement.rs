//! On which processors threads run.

use crate::value::Value;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::io;

/// Processors, by the numbers that the system gives them; none is wherever
/// the system puts a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cores {
    /// First and last of each range, as they were written.
    ranges: Vec<(usize, usize)>,
}

impl Cores {
    /// Runs `start`, whose threads run on these processors from their first
    /// instruction on, for a new thread runs where the one that starts it may.
    pub(crate) fn place<T>(&self, start: impl FnOnce() -> T) -> io::Result<T> {
        if self.ranges.is_empty() {
            return Ok(start());
        }
        let before = sched_getaffinity(None)?;
        self.check(&before)?;
        let mut set = CpuSet::new();
        self.each().for_each(|core| set.set(core));
        sched_setaffinity(None, &set)?;
        let started = start();
        sched_setaffinity(None, &before)?;
        Ok(started)
    }

    /// How many they are.
    pub(crate) fn count(&self) -> usize {
        self.each().count()
    }

    /// Those of them that this process may use. None, which is wherever the system puts a thread, if these are all that it may
    /// use, or it may use none of these.
    pub(crate) fn allowed(&self) -> io::Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let usable = self.each().filter(|core| allowed.is_set(*core));
        let ranges: Vec<_> = usable.map(|core| (core, core)).collect();
        match ranges.len() == allowed.count() as usize {
            true => Ok(Self::default()),
            false => Ok(Self { ranges }),
        }
    }

    fn each(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    fn check(&self, allowed: &CpuSet) -> io::Result<()> {
        match self.each().find(|core| !allowed.is_set(*core)) {
            None => Ok(()),
            Some(core) => {
                let cores: Vec<String> = (0..CpuSet::MAX_CPU)
                    .filter(|core| allowed.is_set(*core))
                    .map(|core| core.to_string())
                    .collect();
                Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    format!(
                        "processor {core} is none of those that this process may use: {}",
                        cores.join(",")
                    ),
                ))
            }
        }
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

fn range(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| match text.trim().parse() {
        Ok(core) if core < CpuSet::MAX_CPU => Ok(core),
        _ => Err(format!(
            "{text:?} is no processor's number from 0 to {}",
            CpuSet::MAX_CPU - 1
        )),
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    match first <= last {
        true => Ok((first, last)),
        false => Err(format!("{text:?} ends before it begins")),
    }
}

/// A list of numbers and ranges, such as `0,4-7`.
impl Value for Cores {
    const IS_LIST: bool = true;

    fn from_texts(texts: &[String]) -> Result<Self, String> {
        let parts = texts.iter().flat_map(|text| text.split(','));
        let ranges = parts
            .filter(|part| !part.trim().is_empty())
            .map(range)
            .collect::<Result<_, _>>()?;
        Ok(Self { ranges })
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cores(text: &str) -> Result<Cores, String> {
        Cores::from_texts(&[text.to_owned()])
    }

    #[test]
    fn numbers_and_ranges_are_read_and_written() {
        for text in ["", "0", "0,4-7", "3-3"] {
            let read = cores(text).unwrap();
            assert_eq!(cores(&read.to_text()).unwrap(), read, "{text}");
        }
        let read = cores("0, 4-6").unwrap();
        assert_eq!(read.each().collect::<Vec<_>>(), [0, 4, 5, 6]);
        for text in ["x", "-1", "4-", "7-4", "1024", "1.5"] {
            assert!(cores(text).is_err(), "{text}");
        }
    }

    #[test]
    fn threads_run_where_they_are_placed() {
        let before = sched_getaffinity(None).unwrap();
        let allowed = |core: &usize| before.is_set(*core);
        let core = (0..CpuSet::MAX_CPU).find(allowed).unwrap();
        let at = || sched_getaffinity(None).unwrap();
        let thread = cores(&core.to_string())
            .unwrap()
            .place(|| std::thread::spawn(at))
            .unwrap();
        let set = thread.join().unwrap();
        assert_eq!((set.count(), set.is_set(core)), (1, true));
        // The thread that started it is where it was.
        assert_eq!(at(), before);
    }

    #[test]
    fn of_processors_those_are_taken_that_the_process_may_use() {
        let all = sched_getaffinity(None).unwrap();
        let mut mine = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let first = mine.next().unwrap();
        let allowed = |text: &str| cores(text).unwrap().allowed().unwrap().to_text();
        let everywhere = allowed(&format!("0-{}", CpuSet::MAX_CPU - 1));
        assert_eq!((everywhere, allowed("")), (String::new(), String::new()));
        if let Some(last) = mine.next_back() {
            assert_eq!(allowed(&first.to_string()), first.to_string());
            let beyond = format!("{last},{}", CpuSet::MAX_CPU - 1);
            assert_eq!(allowed(&beyond), last.to_string());
        }
    }

    #[test]
    fn a_processor_that_is_not_there_is_named() {
        let last = CpuSet::MAX_CPU - 1;
        if sched_getaffinity(None).unwrap().is_set(last) {
            return;
        }
        let error = cores(&last.to_string()).unwrap().place(|| ()).unwrap_err();
        assert!(error.to_string().contains(&last.to_string()), "{error}");
    }
}
