//! Which of several processes this is, where something like `mpiexec` started them.

/// A place among processes that were launched together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// From 0.
    pub rank: usize,
    /// How many there are.
    pub size: usize,
}

/// The variables by which launchers tell it: MPICH and its kin, Open MPI, Slurm.
const VARIABLES: [(&str, &str); 3] = [
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

impl Place {
    /// From the environment; none for a program that was started alone.
    pub fn find(variable: impl Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.trim().parse::<usize>().ok();
        VARIABLES
            .iter()
            .filter_map(|(rank, size)| {
                Some(Self {
                    rank: number(rank)?,
                    size: number(size)?,
                })
            })
            .find(|place| place.size > 1 && place.rank < place.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Option<Place> {
        Place::find(|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn every_launcher_is_understood() {
        for (rank, size) in VARIABLES {
            let place = find(&[(rank, "2"), (size, "4")]);
            assert_eq!(place, Some(Place { rank: 2, size: 4 }), "{rank}");
        }
        // An allocation of Slurm without srun, with Open MPI inside.
        let place = find(&[
            ("SLURM_NTASKS", "8"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
        ]);
        assert_eq!(place, Some(Place { rank: 1, size: 8 }));
    }

    #[test]
    fn one_process_alone_is_not_launched() {
        assert_eq!(find(&[]), None);
        assert_eq!(find(&[("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")]), None);
        assert_eq!(find(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")]), None);
    }
}
