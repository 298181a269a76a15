//! The audit's own tests: a journal in which all is well, and what must be found in it when it is not.

use crate::audit::audit;
use crate::content::{self, Block, RANKS};
use crate::journal::{Content, Entry, Role, Said, Who};

/// The first run, so that its steps are known.
const RUN: u64 = 1;

fn who(role: Role, rank: u32) -> Who {
    let life = match role {
        Role::Write => 1,
        Role::Read => 11,
        Role::Live => 21,
        Role::Audit => 0,
    };
    let life = life + u64::from(rank);
    Who { role, rank, life }
}

fn offset(step: u64) -> u64 {
    // The record of the run's beginning is the first one.
    step + 1
}

fn content(step: u64) -> Content {
    let lives: Vec<u64> = (0..RANKS).map(|rank| who(Role::Write, rank).life).collect();
    let blocks = (0..RANKS).zip(&lives).map(|(rank, life)| Block {
        run: RUN,
        step,
        rank,
        life: *life,
    });
    Content {
        digests: blocks.map(Block::digest).collect(),
        lives,
        last: content::attribute(step),
    }
}

fn seen(step: u64) -> Said {
    Said::Seen {
        run: RUN,
        step,
        offset: offset(step),
        content: content(step),
    }
}

/// What a rank of a reader says of a step.
fn read(step: u64, asked: u64) -> [Said; 4] {
    let offset = offset(step);
    [
        Said::Given {
            asked,
            run: RUN,
            step,
            offset,
        },
        seen(step),
        Said::Releasing { offset },
        Said::Released {
            began: asked,
            offset,
        },
    ]
}

/// A run that nothing disturbs, its readers, and what is stored. The clock moves by one with each entry.
fn journal() -> Vec<Entry> {
    let steps = content::steps_of(RUN);
    let mut said: Vec<(Who, Said)> = Vec::new();
    let writers: Vec<Who> = (0..RANKS).map(|rank| who(Role::Write, rank)).collect();
    let groups = [Role::Read, Role::Live];
    let readers = groups.map(|role| [0, 1].map(|rank| who(role, rank)));
    let readers: Vec<Who> = readers.into_iter().flatten().collect();
    said.extend(readers.iter().map(|who| (*who, Said::Attached)));
    let opened = Said::Opened { run: RUN, next: 0 };
    said.extend(writers.iter().map(|who| (*who, opened.clone())));
    for step in 0..steps {
        said.extend(
            writers
                .iter()
                .map(|who| (*who, Said::Ending { run: RUN, step })),
        );
        let ended = match step % 2 {
            0 => Said::Accepted { run: RUN, step },
            _ => Said::Committed {
                run: RUN,
                step,
                offset: offset(step),
            },
        };
        said.extend(writers.iter().map(|who| (*who, ended.clone())));
        for who in &readers {
            let asked = said.len() as u64;
            said.extend(read(step, asked).map(|said| (*who, said)));
        }
    }
    said.extend(writers.iter().map(|who| (*who, Said::Closed { run: RUN })));
    let over = Said::RunOver {
        run: RUN,
        broken: false,
        offset: offset(steps),
    };
    said.extend(readers.iter().map(|who| (*who, over.clone())));
    let test = who(Role::Audit, 0);
    said.extend((0..steps).map(|step| (test, seen(step))));
    said.push((test, over));
    let entries = (0..).zip(said);
    entries
        .map(|(at, (who, said))| Entry { at, who, said })
        .collect()
}

fn is_of(entry: &Entry, role: Role, rank: u32) -> bool {
    (entry.who.role, entry.who.rank) == (role, rank)
}

fn at_step(entry: &Entry, wanted: u64) -> bool {
    matches!(&entry.said, Said::Seen { step, .. } if *step == wanted)
}

/// Changes a good journal; the audit has to find something that it says with these words.
#[track_caller]
fn is_found(words: &str, change: impl FnOnce(&mut Vec<Entry>)) {
    let mut entries = journal();
    change(&mut entries);
    let findings = audit(&entries).expect_err(words);
    let is_said = findings.iter().any(|finding| finding.contains(words));
    assert!(is_said, "{words:?} is not said in {findings:#?}");
}

#[test]
fn a_good_journal_is_found_good() {
    let summary = audit(&journal()).unwrap();
    let steps = content::steps_of(RUN) as usize;
    assert_eq!((summary.runs, summary.broken, summary.steps), (1, 0, steps));
    assert_eq!((summary.given, summary.again), (4 * steps, 0));
    assert_eq!((summary.pairs, summary.released), (2, 2 * steps));
}

#[test]
fn a_committed_step_that_is_lost() {
    is_found(
        "that step 3 of run 1 is committed: step 3 is lost",
        |entries| {
            entries.retain(|entry| !(is_of(entry, Role::Audit, 0) && at_step(entry, 3)));
        },
    );
}

#[test]
fn the_last_steps_of_a_closed_run_that_are_lost() {
    is_found("run 1 has", |entries| {
        let last = content::steps_of(RUN) - 1;
        entries.retain(|entry| !(is_of(entry, Role::Audit, 0) && at_step(entry, last)));
    });
}

#[test]
fn a_step_that_is_torn() {
    for role in [Role::Audit, Role::Read, Role::Live] {
        is_found(
            "torn: Block { run: 1, step: 2, rank: 1, life: 2 }",
            |entries| {
                let is_torn = |entry: &&mut Entry| is_of(entry, role, 0) && at_step(entry, 2);
                let Said::Seen { content, .. } =
                    &mut entries.iter_mut().find(is_torn).unwrap().said
                else {
                    unreachable!("it was looked for");
                };
                content.digests[1] ^= 1;
            },
        );
    }
}

#[test]
fn a_rank_of_a_step_that_is_of_another_life() {
    is_found(
        "nobody has written Block { run: 1, step: 2, rank: 0, life: 9 }",
        |entries| {
            for entry in entries {
                if let (true, Said::Seen { step, content, .. }) =
                    (at_step(entry, 2), &mut entry.said)
                {
                    content.lives[0] = 9;
                    content.digests[0] = Block {
                        run: RUN,
                        step: *step,
                        rank: 0,
                        life: 9,
                    }
                    .digest();
                }
            }
        },
    );
    // A life that came behind the step, or was told that others have it.
    is_found("step 2 is of an earlier life", |entries| {
        let life = Who {
            life: 9,
            ..who(Role::Write, 0)
        };
        let at = entries.len() as u64;
        let said = Said::Opened { run: RUN, next: 2 };
        entries.push(Entry {
            at,
            who: life,
            said,
        });
    });
}

#[test]
fn a_step_that_is_there_twice() {
    is_found("doubled", |entries| {
        let place = entries
            .iter()
            .position(|entry| is_of(entry, Role::Audit, 0) && at_step(entry, 4));
        let mut again = entries[place.unwrap()].clone();
        let Said::Seen { offset, .. } = &mut again.said else {
            unreachable!("it was looked for");
        };
        *offset += 1;
        entries.insert(place.unwrap() + 1, again);
    });
}

#[test]
fn a_step_that_is_given_again_after_all_have_released_it() {
    for role in [Role::Read, Role::Live] {
        is_found("given step 2 of run 1 again", |entries| {
            let later = Who {
                life: 31,
                ..who(role, 1)
            };
            let at = entries.len() as u64;
            let [given, ..] = read(2, at);
            let said = [Said::Attached, given];
            entries.extend(said.map(|said| Entry {
                at,
                who: later,
                said,
            }));
        });
    }
}

#[test]
fn a_step_that_is_given_twice_to_one_life() {
    is_found("doubled", |entries| {
        let [given, ..] = read(2, 0);
        let at = entries.len() as u64;
        let who = who(Role::Read, 1);
        entries.push(Entry {
            at,
            who,
            said: given,
        });
    });
}

#[test]
fn a_step_that_a_reader_is_not_given() {
    is_found("step 3 of run 1 was not given", |entries| {
        entries.retain(|entry| !(is_of(entry, Role::Read, 1) && of_offset(entry, offset(3))));
    });
    // It was given to a life that was killed before it was done with it.
    is_found("no life of it was done with step 3", |entries| {
        entries.retain(|entry| {
            let is_done = matches!(entry.said, Said::Releasing { .. } | Said::Released { .. });
            !(is_of(entry, Role::Read, 1) && is_done && of_offset(entry, offset(3)))
        });
    });
}

fn of_offset(entry: &Entry, wanted: u64) -> bool {
    match entry.said {
        Said::Given { offset, .. }
        | Said::Seen { offset, .. }
        | Said::Releasing { offset }
        | Said::Released { offset, .. } => offset == wanted,
        _ => false,
    }
}

#[test]
fn ranks_that_are_given_other_steps_in_a_turn() {
    is_found("were given other turns", |entries| {
        entries.retain(|entry| !(is_of(entry, Role::Live, 1) && of_offset(entry, offset(3))));
    });
}

#[test]
fn the_end_of_a_run_that_is_told_before_its_steps() {
    is_found("before it was given step 4", |entries| {
        let is_over = |entry: &Entry| {
            is_of(entry, Role::Read, 0) && matches!(entry.said, Said::RunOver { .. })
        };
        let over = entries.iter().position(is_over).unwrap();
        let over = entries.remove(over);
        let place = entries
            .iter()
            .position(|entry| is_of(entry, Role::Read, 0) && of_offset(entry, offset(4)));
        entries.insert(place.unwrap(), over);
    });
}

#[test]
fn an_attribute_of_another_step() {
    is_found("its attribute is 1", |entries| {
        let is_step = |entry: &&mut Entry| at_step(entry, 4);
        let Said::Seen { content, .. } = &mut entries.iter_mut().find(is_step).unwrap().said else {
            unreachable!("it was looked for");
        };
        content.last = 1;
    });
}
