//! All workloads' known answers, on several numbers of ranks.

use counterfoil_workloads::{Class, LookupError, NAMES, Outcome, RanksError, Value, by_name, job_digest};

use crate::threads::run_ranks;

fn outcomes(name: &str, class: Class, ranks: u32) -> Vec<Outcome> {
    let workload = by_name(name, class).unwrap();
    run_ranks(ranks, |comm| workload.run(comm, None).unwrap())
}

fn assert_zeta(class: Class, published: f64, ranks: u32) {
    for outcome in outcomes("cg", class, ranks) {
        let Value::Number(zeta) = outcome.value else { panic!("{:?} is not a number", outcome.value) };
        assert_eq!(outcome.verified, Some(true), "zeta {zeta} on {ranks} ranks");
        assert!((zeta - published).abs() <= 1e-10);
    }
}

#[test]
fn cg_of_class_s_gives_the_published_zeta() {
    for ranks in [1, 2, 4, 8, 16] {
        assert_zeta(Class::S, 8.597_177_507_864_8, ranks);
    }
}

#[test]
fn cg_of_class_w_gives_the_published_zeta() {
    for ranks in [1, 2, 4, 8] {
        assert_zeta(Class::W, 10.362_595_087_124, ranks);
    }
}

#[test]
fn cg_of_class_a_gives_the_published_zeta() {
    assert_zeta(Class::A, 17.130_235_054_029, 4);
}

#[test]
fn a_ring_ends_with_the_hashes_of_the_serial_computation() {
    for ranks in [1, 2, 3, 5, 8] {
        assert!(outcomes("ring", Class::S, ranks).iter().all(|outcome| outcome.verified == Some(true)));
    }
}

#[test]
fn a_master_combines_every_task_exactly_once() {
    for ranks in [2, 3, 4, 9] {
        assert!(outcomes("master-worker", Class::S, ranks).iter().all(|outcome| outcome.verified == Some(true)));
    }
    assert!(outcomes("master-worker", Class::W, 4).iter().all(|outcome| outcome.verified == Some(true)));
}

#[test]
fn ft_gives_the_published_checksums() {
    for (class, ranks) in [(Class::S, &[1, 2, 4, 8, 64][..]), (Class::W, &[2, 4])] {
        for &ranks in ranks {
            assert!(outcomes("ft", class, ranks).iter().all(|outcome| outcome.verified == Some(true)), "{ranks} ranks");
        }
    }
}

#[test]
fn programs_of_the_papers_end_with_the_result_of_the_serial_computation() {
    for name in ["laplace", "gauss", "neurons", "matmul"] {
        let of_one = outcomes(name, Class::S, 1)[0].value.clone();
        for ranks in [2, 3, 5, 8] {
            for outcome in outcomes(name, Class::S, ranks) {
                assert_eq!((outcome.verified, &outcome.value), (Some(true), &of_one), "{name} on {ranks} ranks");
            }
        }
        assert!(outcomes(name, Class::W, 4).iter().all(|outcome| outcome.verified == Some(true)), "{name}");
    }
    for ranks in [2, 3, 6] {
        assert!(outcomes("disks", Class::S, ranks).iter().all(|outcome| outcome.verified == Some(true)));
    }
}

#[test]
fn every_run_on_the_same_number_of_ranks_has_the_same_digest() {
    for name in NAMES {
        let first = job_digest(&outcomes(name, Class::S, 4));
        for _ in 0..3 {
            assert_eq!(job_digest(&outcomes(name, Class::S, 4)), first, "{name}");
        }
        assert_ne!(job_digest(&outcomes(name, Class::S, 2)), first, "{name}");
    }
}

#[test]
fn invalid_numbers_of_ranks_are_refused_without_running() {
    let validate = |name, ranks| by_name(name, Class::S).unwrap().validate(ranks);
    for ranks in [0, 3, 6, 100] {
        assert_eq!(validate("cg", ranks), Err(RanksError::NotPowerOfTwo { workload: "cg", ranks }));
    }
    assert!(matches!(validate("cg", 1 << 20), Err(RanksError::TooMany { .. })));
    assert!(matches!(validate("ring", 0), Err(RanksError::TooFew { .. })));
    assert!(matches!(validate("master-worker", 1), Err(RanksError::TooFew { .. })));
    for name in ["laplace", "gauss", "neurons", "matmul"] {
        assert!(matches!(validate(name, 0), Err(RanksError::TooFew { .. })), "{name}");
        assert!(matches!(validate(name, 1 << 10), Err(RanksError::TooMany { .. })), "{name}");
    }
    assert_eq!(validate("ft", 6), Err(RanksError::NotPowerOfTwo { workload: "ft", ranks: 6 }));
    assert!(matches!(validate("ft", 128), Err(RanksError::TooMany { .. })));
    assert!(matches!(validate("disks", 1), Err(RanksError::TooFew { .. })));
    let workload = by_name("cg", Class::S).unwrap();
    let messages = run_ranks(3, |comm| workload.run(comm, None).unwrap_err().to_string());
    assert_eq!(messages[0], "cg needs a power of two of ranks, not 3");
}

#[test]
fn unknown_names_and_classes_are_refused_by_name() {
    assert_eq!(by_name("gc", Class::S).unwrap_err(), LookupError::Workload { name: "gc".to_owned() });
    assert_eq!("B".parse::<Class>(), Err(LookupError::Class { name: "B".to_owned() }));
    assert_eq!("w".parse(), Ok(Class::W));
    for name in NAMES {
        for class in Class::ALL {
            let workload = by_name(name, class).unwrap();
            assert_eq!((workload.name(), workload.class()), (name, class));
            assert!(workload.iterations(2, 4).at_least >= 7, "{name}: a default kill at iteration 7 must exist");
        }
    }
}
