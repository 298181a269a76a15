//! Two sites on loopback: an offer, who joins it, and programs on both sides.

#![forbid(unsafe_code)]

mod rig;

use relay::{Code, Event, Refusal, RelayError};
use rig::{
    CuttingProxy, Echo, HubSite, Site, connect, noise, offer, port_of, there_and_back, until,
};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

#[test]
fn bytes_pass_both_ways_and_each_way_ends_by_itself() {
    let echo = Echo::start();
    let site = Site::pair(&[("echo", &echo.address)]);
    for bytes in [0, 1, 70_000, 20_000_000] {
        let sent = noise(bytes as u64, bytes);
        let back = there_and_back(connect(site.at("echo")), &sent);
        assert!(back == sent, "{bytes} bytes: {} came back", back.len());
    }
    let account = site.joined.account();
    assert_eq!(account.streams, 4);
    assert!(account.rtt.is_some());
    assert_eq!(account.cuts, 0);
}

#[test]
fn an_end_of_one_way_leaves_the_other_one_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::pair(&[("t", &listener.local_addr().unwrap().to_string())]);
    let mut here = connect(site.at("t"));
    let (mut there, _) = listener.accept().unwrap();
    // The target ends first, and still reads.
    there.write_all(b"greetings").unwrap();
    there.shutdown(Shutdown::Write).unwrap();
    let mut heard = Vec::new();
    here.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"greetings");
    here.write_all(b"answer").unwrap();
    here.shutdown(Shutdown::Write).unwrap();
    heard.clear();
    there.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"answer");
}

#[test]
fn a_program_that_fails_fails_at_the_other_side() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let site = Site::pair(&[("t", &address)]);
    let mut here = connect(site.at("t"));
    let (there, _) = listener.accept().unwrap();
    // What it has not read makes the kernel reset the connection.
    here.write_all(b"unread").unwrap();
    there.peek(&mut [0; 6]).unwrap();
    drop(there);
    assert!(here.read_to_end(&mut Vec::new()).is_err());
    // A target that takes no connection.
    drop(listener);
    let mut here = connect(site.at("t"));
    assert!(here.read_to_end(&mut Vec::new()).is_err());
    let why = site.offered.until(|event| match event {
        Event::Refused(why) => Some(why.clone()),
        _ => None,
    });
    assert!(why.contains(&format!("t={address}")), "{why}");
}

#[test]
fn many_connections_share_one_port() {
    rig::allow_connections();
    let echo = Echo::start();
    for count in [64, 300] {
        let site = Site::pair(&[("echo", &echo.address)]);
        let sockets: Vec<_> = (0..count).map(|_| connect(site.at("echo"))).collect();
        std::thread::scope(|scope| {
            for (index, socket) in sockets.into_iter().enumerate() {
                scope.spawn(move || {
                    let sent = noise(index as u64 + 7, 100_000 + index);
                    assert!(there_and_back(socket, &sent) == sent, "connection {index}");
                });
            }
        });
        assert_eq!(site.joined.account().streams, count);
    }
}

#[test]
fn a_slow_reader_does_not_stall_the_others() {
    let echo = Echo::start();
    let lazy = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = Site::pair(&[
        ("echo", &echo.address),
        ("lazy", &lazy.local_addr().unwrap().to_string()),
    ]);
    let mut stuck = connect(site.at("lazy"));
    let (taken, _) = lazy.accept().unwrap();
    stuck.set_nonblocking(true).unwrap();
    // It takes what fits into buffers and grants, and then no more.
    let block = vec![7; 1 << 20];
    let mut accepted = 0_u64;
    let mut idle = 0;
    while idle < 50 {
        match stuck.write(&block) {
            Ok(bytes) => {
                accepted += bytes as u64;
                idle = 0;
            }
            Err(_) => {
                idle += 1;
                let sent = noise(idle, 10_000);
                assert!(there_and_back(connect(site.at("echo")), &sent) == sent);
            }
        }
        assert!(accepted < 512 << 20, "there is no bound");
    }
    drop(taken);
}

#[test]
fn streams_live_through_a_cut_and_a_new_one_needs_no_code() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    let proxy = CuttingProxy::to(&offered.address.unwrap().to_string());
    let site = Site::join(offered, proxy.address.port(), |_| {});
    let mut socket = connect(site.at("echo"));
    let sent = noise(3, 8_000_000);
    let mut writer = socket.try_clone().unwrap();
    std::thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || writer.write_all(sent).unwrap());
        let mut back = vec![0; sent.len()];
        let mut at = 0;
        for cut in 0..4 {
            let end = sent.len() * (cut + 1) / 4;
            socket.read_exact(&mut back[at..end]).unwrap();
            at = end;
            proxy.cut();
        }
        assert!(&back == sent, "other bytes came back");
    });
    let account = until(|| Some(site.joined.account()).filter(|account| account.stripes > 0));
    assert!(account.cuts > 0);
    assert!(there_and_back(connect(site.at("echo")), b"later") == b"later");
}

#[test]
fn one_listener_has_many_offers_each_by_its_own_code() {
    let (first, second) = (Echo::start(), Echo::start());
    let hub = HubSite::start();
    let proxy = CuttingProxy::to(&hub.hub.address().to_string());
    let port = proxy.address.port();
    let codes = [&first, &second].map(|echo| hub.offer(&echo.address));
    let sites = codes.each_ref().map(|(code, _)| {
        let joined = rig::try_join(code.clone(), port, |_| {}).unwrap();
        rig::Side::new(joined)
    });
    for _ in 0..2 {
        for site in &sites {
            assert!(there_and_back(connect(site.bound("echo")), b"hello") == b"hello");
        }
        // Each comes again to its own.
        proxy.cut();
        sites.iter().for_each(|site| {
            until(|| (site.account().cuts > 0 && site.account().stripes > 0).then_some(()))
        });
    }
    // A code is good once, here too, and another one is none.
    for code in [codes[0].0.clone(), Code::new([9; 10])] {
        let refused = rig::try_join(code, port, |_| {}).map(drop).unwrap_err();
        assert_eq!(refused, RelayError::Refused(Refusal::Wrong));
    }
    // The end of one is not that of the other.
    let [(_, one), (_, _other)] = codes;
    drop(one);
    assert_eq!(sites[0].ended(), Ok(()));
    assert!(there_and_back(connect(sites[1].bound("echo")), b"still") == b"still");
}

#[test]
fn a_code_is_refused_that_is_wrong_or_used() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    let port = port_of(&offered);
    let right = offered.code.clone();
    let wrong = Code::new([9; 10]);
    let refused = rig::try_join(wrong, port, |_| {}).err();
    assert_eq!(refused, Some(RelayError::Refused(Refusal::Wrong)));
    let site = Site::join(offered, port, |_| {});
    let refused = rig::try_join(right, port, |_| {}).err();
    assert_eq!(refused, Some(RelayError::Refused(Refusal::Used)));
    assert!(there_and_back(connect(site.at("echo")), b"still") == b"still");
}

#[test]
fn who_ends_tls_in_between_is_refused_by_both() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    let middle = rig::Middle::to(port_of(&offered));
    let refused = rig::try_join(offered.code.clone(), middle.port, |_| {}).err();
    assert_eq!(refused, Some(RelayError::Refused(Refusal::Wrong)));
    // One who would answer as the offer does not have the code either.
    let liar = rig::Middle::that_welcomes();
    let refused = rig::try_join(offered.code.clone(), liar.port, |_| {}).err();
    assert_eq!(refused, Some(RelayError::Impostor));
    let port = port_of(&offered);
    let site = Site::join(offered, port, |_| {});
    assert!(there_and_back(connect(site.at("echo")), b"direct") == b"direct");
}

#[test]
fn the_joiner_may_expose_what_the_offerer_binds() {
    let echo = Echo::start();
    let offered = offer(&[], |options| {
        options.binds = vec!["echo=127.0.0.1:0".parse().unwrap()];
    });
    let port = port_of(&offered);
    let target = format!("echo={}", echo.address);
    let site = Site::join(offered, port, |options| {
        options.targets = vec![target.parse().unwrap()];
    });
    let address = site.offered.bound("echo");
    let sent = noise(5, 300_000);
    assert!(there_and_back(connect(address), &sent) == sent);
}

#[test]
fn the_way_leads_through_a_proxy() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    let proxy = rig::ConnectProxy::start(port_of(&offered));
    let port = port_of(&offered);
    let through = net::Proxies::new(format!("http://jo:secret@{}", proxy.address), "");
    let site = Site::join(offered, port, |options| {
        options.place.host = "relay.elsewhere".to_owned();
        options.place.proxies = through;
    });
    assert!(there_and_back(connect(site.at("echo")), b"out") == b"out");
    let asked = proxy.asked();
    assert!(
        asked.starts_with(&format!("CONNECT relay.elsewhere:{port} HTTP/1.1\r\n")),
        "{asked}"
    );
    assert!(
        asked.contains("Proxy-Authorization: Basic am86c2VjcmV0"),
        "{asked}"
    );
    // One that refuses is quoted.
    let refuses = rig::ConnectProxy::that_refuses();
    let through = net::Proxies::new(format!("http://jo:secret@{}", refuses.address), "");
    let refused = rig::try_join(Code::new([1; 10]), port, |options| {
        options.place.host = "relay.elsewhere".to_owned();
        options.place.proxies = through;
    });
    let said = refused.err().unwrap().to_string();
    assert!(said.contains("refuses: 403 Forbidden"), "{said}");
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn either_side_ends_it_for_both() {
    let echo = Echo::start();
    for joiner_ends in [true, false] {
        let site = Site::pair(&[("echo", &echo.address)]);
        let mut open = connect(site.at("echo"));
        open.write_all(b"x").unwrap();
        open.read_exact(&mut [0]).unwrap();
        match joiner_ends {
            true => site.joined.stop(),
            false => site.offered.stop(),
        }
        assert_eq!(site.joined.ended(), Ok(()));
        assert_eq!(site.offered.ended(), Ok(()));
        assert!(open.read_to_end(&mut Vec::new()).is_err());
        assert!(TcpStream::connect(site.at("echo")).is_err());
    }
}

#[test]
fn strangers_are_closed_and_harm_nobody() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    let address = offered.address.unwrap();
    let mut strangers: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
    for (index, stranger) in strangers.iter_mut().enumerate() {
        // Garbage, half a record, nothing at all.
        let _ = match index % 3 {
            0 => stranger.write_all(&noise(index as u64, 5000)),
            1 => stranger.write_all(&[22, 3, 1, 2, 0]),
            _ => Ok(()),
        };
    }
    let port = address.port();
    let site = Site::join(offered, port, |_| {});
    assert!(there_and_back(connect(site.at("echo")), b"mine") == b"mine");
    for mut stranger in strangers {
        // Each is closed, the silent ones at their deadline.
        let mut byte = [0; 512];
        while matches!(stranger.read(&mut byte), Ok(1..)) {}
    }
}

#[test]
fn frames_of_four_gigabytes_are_refused() {
    let echo = Echo::start();
    let offered = offer(&[("echo", &echo.address)], |_| {});
    for frame in [
        [&u32::MAX.to_le_bytes()[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat(),
        [&u32::MAX.to_le_bytes()[..], &[17, 0, 0, 0, 2, 0, 0, 0]].concat(),
        noise(77, 600),
    ] {
        let mut stream = rig::tls_to(port_of(&offered));
        stream.write_all(&frame).unwrap();
        stream.flush().unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty(), "{rest:?}");
    }
}
