//! Faults that tests plant into a crate, to see that they are noticed. See the README.

#![forbid(unsafe_code)]

/// Makes `Fault`, an enum of the names given, `planted` and, for tests, `with`.
///
/// With `testing:` in front the simulation plants them as well: by `plant`, where the crate has the feature `testing`.
#[macro_export]
macro_rules! faults {
    (testing: $($(#[$about:meta])* $fault:ident,)+) => {
        /// A planted fault. Exists in tests alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Fault {
            $($(#[$about])* $fault,)+
        }

        #[cfg(any(test, feature = "testing"))]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<Fault>> =
                const { ::std::cell::Cell::new(None) };
        }

        /// Whether a test has planted this fault on this thread.
        #[cfg(any(test, feature = "testing"))]
        pub(crate) fn planted(fault: Fault) -> bool {
            PLANTED.get() == Some(fault)
        }

        /// Nothing is planted outside of tests.
        #[cfg(not(any(test, feature = "testing")))]
        pub(crate) const fn planted(_: Fault) -> bool {
            false
        }

        /// Plants a fault on this thread, or takes it out again.
        #[cfg(any(test, feature = "testing"))]
        pub fn plant(fault: Option<Fault>) {
            PLANTED.set(fault);
        }

        /// Runs `act` with a fault planted.
        #[cfg(test)]
        pub(crate) fn with<T>(fault: Fault, act: impl FnOnce() -> T) -> T {
            plant(Some(fault));
            let done = act();
            plant(None);
            done
        }
    };
    ($($(#[$about:meta])* $fault:ident,)+) => {
        /// A planted fault. Exists in tests alone.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Fault {
            $($(#[$about])* $fault,)+
        }

        #[cfg(test)]
        ::std::thread_local! {
            static PLANTED: ::std::cell::Cell<Option<Fault>> =
                const { ::std::cell::Cell::new(None) };
        }

        /// Whether a test has planted this fault on this thread.
        #[cfg(test)]
        pub(crate) fn planted(fault: Fault) -> bool {
            PLANTED.get() == Some(fault)
        }

        /// Nothing is planted outside of tests.
        #[cfg(not(test))]
        pub(crate) const fn planted(_: Fault) -> bool {
            false
        }

        /// Runs `act` with a fault planted.
        #[cfg(test)]
        pub(crate) fn with<T>(fault: Fault, act: impl FnOnce() -> T) -> T {
            PLANTED.set(Some(fault));
            let done = act();
            PLANTED.set(None);
            done
        }
    };
}

#[cfg(test)]
mod tests {
    faults! {
        /// One.
        One,
        /// Another.
        Other,
    }

    #[test]
    fn one_is_planted_for_as_long_as_it_is_to_be() {
        let both = || (planted(Fault::One), planted(Fault::Other));
        assert_eq!(both(), (false, false));
        assert_eq!(with(Fault::One, both), (true, false));
        assert_eq!(both(), (false, false));
    }
}
