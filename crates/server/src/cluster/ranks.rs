//! Which of the servers that a launcher starts together this one is.

use std::fmt;

/// The most servers of one start.
pub const RANKS_MAX: u32 = 1 << 16;

/// A server among those that are started together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranks {
    /// From 0.
    pub rank: u32,
    /// How many there are.
    pub size: u32,
    /// Among those on its host, from 0; `None` if nothing says it.
    pub local: Option<u32>,
    /// Where `rank` comes from, for the log: an option, or a variable of the environment.
    pub source: &'static str,
}

/// What the command line says, which wins over any launcher.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given {
    /// `--rank`.
    pub rank: Option<u32>,
    /// `--size`.
    pub size: Option<u32>,
}

/// Why it is not known which server this one is. The message names the variables.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant has its line; the names of its fields say the rest"
)]
pub enum RankError {
    /// No launcher says it, and nothing was given.
    Unknown,
    /// A variable is no number that it can be.
    Number {
        variable: &'static str,
        value: String,
    },
    /// A rank is known, but not of how many.
    NoSize { rank: u32, source: &'static str },
    /// A size is known, but not which of them.
    NoRank { size: u32, source: &'static str },
    /// The rank is not below the size.
    Beyond {
        rank: (&'static str, u32),
        size: (&'static str, u32),
    },
    /// Two variables that should say the same do not.
    Contradiction {
        one: (&'static str, u32),
        other: (&'static str, u32),
    },
    /// There are more than [`RANKS_MAX`], or none.
    Size { size: u32, source: &'static str },
}

/// The variables of a launcher.
struct Launcher {
    rank: &'static str,
    size: Option<&'static str>,
    /// The first that is there counts.
    local: &'static [&'static str],
}

/// Launchers that start processes inside an allocation, which may be one of Slurm.
const INNER: [Launcher; 5] = [
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        size: Some("OMPI_COMM_WORLD_SIZE"),
        local: &["OMPI_COMM_WORLD_LOCAL_RANK"],
    },
    Launcher {
        rank: "FLUX_TASK_RANK",
        size: Some("FLUX_JOB_SIZE"),
        local: &["FLUX_TASK_LOCAL_ID"],
    },
    // PALS says how many there are on a host only; the size is that of PMI, which it sets too.
    Launcher {
        rank: "PALS_RANKID",
        size: None,
        local: &["PALS_LOCAL_RANKID"],
    },
    Launcher {
        rank: "PMI_RANK",
        size: Some("PMI_SIZE"),
        local: &["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
    },
    Launcher {
        rank: "PMIX_RANK",
        size: None,
        local: &[],
    },
];

/// Slurm. A launcher that runs inside of a job of it leaves the variables of the step that runs the launcher, so
/// these count where no other launcher says a rank, or the same one.
const SLURM: Launcher = Launcher {
    rank: "SLURM_PROCID",
    size: Some("SLURM_NTASKS"),
    local: &["SLURM_LOCALID"],
};

type Named = (&'static str, u32);

impl Ranks {
    /// Finds it from what was given and from the environment, in which `variable` looks up a name.
    ///
    /// # Errors
    /// [`RankError`], whose message says what to do.
    pub fn find(
        given: Given,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, RankError> {
        let number = |name: &'static str| -> Result<Option<Named>, RankError> {
            // A variable that is empty is one that was unset.
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else {
                return Ok(None);
            };
            match value.parse() {
                Ok(number) => Ok(Some((name, number))),
                Err(_) => Err(RankError::Number {
                    variable: name,
                    value,
                }),
            }
        };
        let given_rank = given.rank.map(|rank| ("--rank", rank));
        let given_size = given.size.map(|size| ("--size", size));
        // Where both were given, nothing that a launcher says can be wrong.
        let launched = match (given_rank, given_size) {
            (Some(_), Some(_)) => Launched::default(),
            _ => Launched::find(&number)?,
        };
        let rank = given_rank.or(launched.rank);
        let size = given_size.or(launched.size);
        let (rank, size) = match (rank, size) {
            (Some(rank), Some(size)) => (rank, size),
            (Some((source, rank)), None) => return Err(RankError::NoSize { rank, source }),
            (None, Some((source, size))) => return Err(RankError::NoRank { size, source }),
            (None, None) => return Err(RankError::Unknown),
        };
        if size.1 == 0 || size.1 > RANKS_MAX {
            let (source, size) = size;
            return Err(RankError::Size { size, source });
        }
        if rank.1 >= size.1 {
            return Err(RankError::Beyond { rank, size });
        }
        // A rank that was given says nothing about the host, nor does the launcher about that rank.
        let local = launched.local.filter(|_| given_rank.is_none());
        Ok(Self {
            rank: rank.1,
            size: size.1,
            local: local.map(|(_, local)| local),
            source: rank.0,
        })
    }
}

/// What launchers say.
#[derive(Default)]
struct Launched {
    rank: Option<Named>,
    size: Option<Named>,
    local: Option<Named>,
}

impl Launched {
    fn find(
        number: &impl Fn(&'static str) -> Result<Option<Named>, RankError>,
    ) -> Result<Self, RankError> {
        let mut found = Self::default();
        for launcher in &INNER {
            found.take(launcher, number)?;
        }
        let is_slurms = match found.rank {
            None => true,
            Some((_, rank)) => {
                matches!(number(SLURM.rank), Ok(Some((_, slurms))) if slurms == rank)
            }
        };
        // Another launcher's size counts, whatever the job has.
        if is_slurms && found.size.is_none() {
            found.take(&SLURM, number)?;
        } else if is_slurms && found.local.is_none() {
            found.local = first(&SLURM, number)?;
        }
        Ok(found)
    }

    fn take(
        &mut self,
        launcher: &Launcher,
        number: &impl Fn(&'static str) -> Result<Option<Named>, RankError>,
    ) -> Result<(), RankError> {
        let Some(rank) = number(launcher.rank)? else {
            return Ok(());
        };
        agree(&mut self.rank, rank)?;
        if let Some(size) = launcher.size.map(number).transpose()?.flatten() {
            agree(&mut self.size, size)?;
        }
        if self.local.is_none() {
            self.local = first(launcher, number)?;
        }
        Ok(())
    }
}

fn first(
    launcher: &Launcher,
    number: &impl Fn(&'static str) -> Result<Option<Named>, RankError>,
) -> Result<Option<Named>, RankError> {
    for name in launcher.local {
        if let Some(found) = number(name)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn agree(known: &mut Option<Named>, other: Named) -> Result<(), RankError> {
    match *known {
        Some(one) if one.1 != other.1 => Err(RankError::Contradiction { one, other }),
        Some(_) => Ok(()),
        None => {
            *known = Some(other);
            Ok(())
        }
    }
}

impl fmt::Display for RankError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "which server of the cluster this is, is not known: start it by srun, mpiexec or flux run, \
                 which set SLURM_PROCID and SLURM_NTASKS, OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE, PMI_RANK and \
                 PMI_SIZE, or FLUX_TASK_RANK and FLUX_JOB_SIZE; or give --rank and --size",
            ),
            Self::Number { variable, value } => write!(
                f,
                "{variable} is {value:?}, which is no rank or size: give --rank and --size"
            ),
            Self::NoSize { rank, source } => write!(
                f,
                "{source} is {rank}, but no variable says how many servers are started: give --size"
            ),
            Self::NoRank { size, source } => write!(
                f,
                "{source} is {size}, but no variable says which of these servers this is: give --rank"
            ),
            Self::Beyond { rank, size } => write!(
                f,
                "{} is {}, and {} is {}: ranks are below the size",
                rank.0, rank.1, size.0, size.1
            ),
            Self::Contradiction { one, other } => write!(
                f,
                "{} is {}, but {} is {}: unset the one that is left over, or give --rank and --size",
                one.0, one.1, other.0, other.1
            ),
            Self::Size { size, source } => write!(
                f,
                "{source} is {size}: there are 1 to {RANKS_MAX} servers in a cluster's start"
            ),
        }
    }
}

impl std::error::Error for RankError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(given: Given, variables: &[(&str, &str)]) -> Result<Ranks, RankError> {
        Ranks::find(given, |name| {
            let found = variables.iter().find(|(known, _)| *known == name)?;
            Some(found.1.to_owned())
        })
    }

    /// Rank, size, rank on its host.
    fn found(variables: &[(&str, &str)]) -> (u32, u32, Option<u32>) {
        let found = find(Given::default(), variables).unwrap();
        (found.rank, found.size, found.local)
    }

    fn refused(given: Given, variables: &[(&str, &str)]) -> String {
        find(given, variables).unwrap_err().to_string()
    }

    const SRUN: [(&str, &str); 3] = [
        ("SLURM_PROCID", "5"),
        ("SLURM_NTASKS", "8"),
        ("SLURM_LOCALID", "1"),
    ];

    #[test]
    fn each_launcher_says_which_server_it_is() {
        assert_eq!(found(&SRUN), (5, 8, Some(1)));
        let ompi = [
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("PMIX_RANK", "2"),
        ];
        assert_eq!(found(&ompi), (2, 4, Some(0)));
        let hydra = [
            ("PMI_RANK", "3"),
            ("PMI_SIZE", "4"),
            ("MPI_LOCALRANKID", "1"),
        ];
        assert_eq!(found(&hydra), (3, 4, Some(1)));
        let pals = [
            ("PALS_RANKID", "3"),
            ("PALS_LOCAL_RANKID", "2"),
            ("PMI_RANK", "3"),
            ("PMI_SIZE", "6"),
            ("PMI_LOCAL_RANK", "2"),
        ];
        assert_eq!(found(&pals), (3, 6, Some(2)));
        let flux = [
            ("FLUX_TASK_RANK", "0"),
            ("FLUX_JOB_SIZE", "1"),
            ("FLUX_TASK_LOCAL_ID", "0"),
        ];
        assert_eq!(found(&flux), (0, 1, Some(0)));
    }

    #[test]
    fn a_launcher_inside_of_a_job_of_slurm_counts_and_not_the_step_that_runs_it() {
        // `mpiexec -n 4` in a batch script: each process has the variables of the script.
        let script = [
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "16"),
            ("SLURM_LOCALID", "0"),
        ];
        for (rank, size) in [
            ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
            ("PMI_RANK", "PMI_SIZE"),
            ("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
        ] {
            let variables = [&script[..], &[(rank, "3"), (size, "4")]].concat();
            assert_eq!(found(&variables), (3, 4, None), "{rank}");
            let variables = [&script[..], &[(rank, "0"), (size, "4")]].concat();
            assert_eq!(found(&variables), (0, 4, Some(0)), "{rank}");
        }
    }

    #[test]
    fn pmix_takes_the_size_of_slurm_if_it_is_slurms() {
        let variables = [&SRUN[..], &[("PMIX_RANK", "5")]].concat();
        assert_eq!(found(&variables), (5, 8, Some(1)));
        let other = [&SRUN[..], &[("PMIX_RANK", "1")]].concat();
        let said = refused(Given::default(), &other);
        assert!(
            said.contains("PMIX_RANK is 1") && said.contains("--size"),
            "{said}"
        );
        let size = Some(2);
        let given = Given { rank: None, size };
        assert_eq!(find(given, &other).unwrap().rank, 1);
    }

    #[test]
    fn what_is_given_wins_and_the_rest_is_the_launchers() {
        let (rank, size) = (Some(2), Some(3));
        let all = find(Given { rank, size }, &[("PMI_RANK", "nonsense")]).unwrap();
        assert_eq!((all.rank, all.size, all.local), (2, 3, None));
        assert_eq!(all.source, "--rank");
        let found = find(Given { rank, size: None }, &SRUN).unwrap();
        assert_eq!((found.rank, found.size, found.local), (2, 8, None));
        let found = find(
            Given {
                rank: None,
                size: Some(6),
            },
            &SRUN,
        )
        .unwrap();
        assert_eq!((found.rank, found.size, found.local), (5, 6, Some(1)));
        assert_eq!(found.source, "SLURM_PROCID");
    }

    #[test]
    fn nonsense_is_refused_by_the_names_of_the_variables() {
        let none = Given::default();
        for (variables, parts) in [
            (&[][..], &["--rank", "SLURM_PROCID", "PMI_SIZE"][..]),
            (&[("SLURM_PROCID", "")], &["--rank"]),
            (&[("PMI_RANK", "-1")], &["PMI_RANK is \"-1\""]),
            (
                &[("PMI_RANK", "1"), ("PMI_SIZE", "4294967296")],
                &["PMI_SIZE is"],
            ),
            (&[("PMI_RANK", "1")], &["PMI_RANK is 1", "--size"]),
            (
                &[("PMI_RANK", "4"), ("PMI_SIZE", "4")],
                &["PMI_RANK is 4", "PMI_SIZE is 4"],
            ),
            (&[("PMI_RANK", "0"), ("PMI_SIZE", "0")], &["PMI_SIZE is 0"]),
            (
                &[("PMI_RANK", "0"), ("PMI_SIZE", "65537")],
                &["PMI_SIZE is 65537", "65536"],
            ),
            (
                &[
                    ("PMI_RANK", "1"),
                    ("PMI_SIZE", "4"),
                    ("OMPI_COMM_WORLD_RANK", "2"),
                ],
                &["OMPI_COMM_WORLD_RANK is 2", "PMI_RANK is 1"],
            ),
        ] {
            let said = refused(none, variables);
            for part in parts {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
        let rank = Some(8);
        let said = refused(Given { rank, size: None }, &SRUN);
        assert!(
            said.contains("--rank is 8") && said.contains("SLURM_NTASKS is 8"),
            "{said}"
        );
        let said = refused(
            Given {
                rank: None,
                size: Some(3),
            },
            &[],
        );
        assert!(
            said.contains("--size is 3") && said.contains("--rank"),
            "{said}"
        );
    }
}
