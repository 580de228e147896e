use super::*;

fn study(body: &str) -> Result<Study, StudyError> {
    Study::from_toml(&format!("question = 'what?'\nexperiment = 'connect'\n{body}"))
}

fn refused(body: &str) -> String {
    study(body).unwrap_err().to_string()
}

#[test]
fn factors_multiply_and_name_the_arms() {
    let study = study("[factors]\nbacklog = [4, 128]\nlink = ['direct', 'metro']").unwrap();
    let names: Vec<_> = study.arms().unwrap().into_iter().map(|arm| arm.name).collect();
    assert_eq!(
        names,
        [
            "backlog 4, link direct",
            "backlog 4, link metro",
            "backlog 128, link direct",
            "backlog 128, link metro"
        ]
    );
}

#[test]
fn a_named_arm_overrides_the_settings_of_the_study() {
    let study =
        study("[settings]\ncount = 10\n[[arm]]\nname = 'a'\ncount = 20\n[[arm]]\nname = 'b'")
            .unwrap();
    let arms = study.arms().unwrap();
    assert_eq!(arms[0].settings["count"], 20);
    assert_eq!(arms[1].settings["count"], 10);
    assert_eq!(arms[0].factors["count"], 20);
}

#[test]
fn the_warm_up_is_of_every_arm_that_has_none_of_its_own() {
    let study =
        study("warmup = '1s'\n[[arm]]\nname = 'a'\nwarmup = 20\n[[arm]]\nname = 'b'").unwrap();
    let arms = study.arms().unwrap();
    assert_eq!(arms[0].settings["warmup"], 20);
    assert_eq!(arms[1].settings["warmup"], "1s");
}

#[test]
fn two_arms_may_be_the_same_but_for_their_names() {
    assert_eq!(study("[[arm]]\nname = 'A'\n[[arm]]\nname = 'a'").unwrap().arms().unwrap().len(), 2);
}

#[test]
fn a_product_that_explodes_is_refused_with_its_count() {
    let levels = (0..20).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let error = refused(&format!("[factors]\na = [{levels}]\nb = [{levels}]"));
    assert!(error.starts_with("line 3: 400 arms, at most 256"), "{error}");
}

#[test]
fn what_cannot_be_an_arm_names_line_key_and_remedy() {
    for (body, says) in [
        ("[factors]\na = [1, 1]", "line 4: factors.a \"1\": given twice; each arm"),
        ("[factors]\na = []", "line 4: factors.a: no levels; write at least one"),
        ("[factors]\na = [nan]", "line 4: factors.a: write text in quotes"),
        ("[settings]\n\na = 2003-01-01", "line 5: settings.a: write text in quotes"),
        ("[settings]\na.b = 3", "line 4: settings.a: write text in quotes"),
        ("[[arm]]\nname = 'x'\n[[arm]]\nname = 'x'", "line 6: arm[2].name \"x\": given twice"),
        ("[[arm]]\nname = ' '", "line 4: arm[1].name: empty"),
        ("name = '../../x'", "line 3: name \"../../x\": write lower-case letters"),
        ("margin = '1'", "line 3: margin \"1\": write a percentage"),
        ("margin = '0%'", "line 3: margin \"0%\": write a percentage"),
        ("[rounds]\ntarget = 'ci'", "line 4: rounds.target \"ci\": write \"ci 1%\" or \"verdict\""),
        ("[rounds]\nmax = 2000", "line 4: rounds.max: 2000 rounds: write a number from 1 to 1000"),
        (
            "[rounds]\nmin = 3\nfixed = 0",
            "line 5: rounds.fixed: 0 rounds: write a number from 1 to 1000",
        ),
    ] {
        let error = refused(body);
        assert!(error.starts_with(says), "{body}: {error}");
    }
    let text = "question = 'what'\nexperiment = 'connect'";
    let error = Study::from_toml(text).unwrap_err().to_string();
    assert_eq!(error, "line 1: question \"what\": a question must end with a question mark");
}

#[test]
fn a_setting_that_another_place_would_take_over_is_refused_where_it_has_no_say() {
    for (body, says) in [
        (
            "[factors]\nbacklog = [1, 2]\n[settings]\ncount = 1\nbacklog = 3",
            "line 7: settings.backlog: overridden in every arm by the factor backlog; remove it",
        ),
        (
            "[factors]\nbacklog = [1, 2]\n[[arm]]\nname = 'a'\n[[arm]]\nname = 'b'\nbacklog = 3",
            "line 9: arm[2].backlog: overridden in every arm by the factor backlog",
        ),
        (
            "warmup = 3\n[settings]\nwarmup = 4",
            "line 3: warmup: overridden in every arm by settings.warmup; remove it here",
        ),
        (
            "warmup = 3\n[factors]\nwarmup = [4, 5]",
            "line 3: warmup: overridden in every arm by the factor warmup",
        ),
    ] {
        let error = refused(body);
        assert!(error.starts_with(says), "{body}: {error}");
    }
}

#[test]
fn a_published_figure_needs_its_arm() {
    let body = "[[published]]\narm = 'conect'\nmetric = 'm'\nvalue = 1.0\nsource = 's'";
    assert_eq!(
        refused(body),
        "line 4: published[1].arm \"conect\": no such arm; did you mean connect?"
    );
}

#[test]
fn a_study_is_the_same_after_its_way_through_the_record() {
    let study = study(
        "name = 'all'\nsource = 's'\nanswer = 'a'\nwarmup = 3\nmetric = 'm'\nmargin = '2%'\n\
         [rounds]\ntarget = 'ci 1%'\nmin = 6\nmax = 7\nmax_time = '1m'\n\
         [settings]\ncount = 1\n[factors]\nbacklog = [1, 'auto', true]\n\
         [[compare]]\nfactor = 'backlog'\nagainst = 1\nmetric = 'n'\n\
         [[arm]]\nname = 'x'\nrate = 1.5\n\
         [[published]]\narm = 'x, backlog 1'\nmetric = 'm'\nvalue = 1\nsource = 's'",
    )
    .unwrap();
    let text = serde_json::to_string(&study).unwrap();
    assert_eq!(serde_json::from_str::<Study>(&text).unwrap(), study);
}

#[test]
fn a_distribution_lends_its_name_to_its_figures() {
    let names = metric_names(&["rtt_us"], &["connect_us"]);
    assert!(names.contains(&"connect_us_p99_9".to_owned()) && names.contains(&"rtt_us".into()));
    assert_eq!(names.len(), 8);
}

#[test]
fn every_order_is_a_permutation_and_the_seed_gives_it_again() {
    for round in 0..50 {
        let order = order_of_round(7, round, 9);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..9).collect::<Vec<_>>());
        assert_eq!(order, order_of_round(7, round, 9));
    }
}

#[test]
fn every_arm_runs_at_every_place_about_equally_often() {
    let (rounds, arms) = (12_000, 4);
    let mut places = [[0_u32; 4]; 4];
    for round in 0..rounds {
        for (place, arm) in order_of_round(1, round, arms).into_iter().enumerate() {
            places[arm][place] += 1;
        }
    }
    // 3,000 expected with a standard deviation of 47.
    for count in places.into_iter().flatten() {
        assert!((2_800..3_200).contains(&count), "{places:?}");
    }
}

#[test]
fn trials_have_seeds_of_their_own() {
    let mut seeds: Vec<u64> = (0..20)
        .flat_map(|round| (0..20).map(move |arm| seed_of_trial(1, round, arm, 0)))
        .chain((1..4).map(|attempt| seed_of_trial(1, 0, 0, attempt)))
        .collect();
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 403);
}
