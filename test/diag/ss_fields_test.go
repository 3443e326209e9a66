// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// ssLine is a socket as the unmodified ss -tuwMinpmeaOHo prints it: the values of the
// line by their names.
type ssLine map[string]string

// parseSS parses a line of ss. The values of "send", "pacing_rate" and "delivery_rate"
// follow after a blank.
func parseSS(line string) (ssLine, error) {
	f := strings.Fields(line)
	if len(f) < 6 {
		return nil, fmt.Errorf("%d words", len(f))
	}
	s := ssLine{"netid": f[0], "state": f[1], "recvq": f[2], "sendq": f[3], "local": f[4], "peer": f[5]}
	for i := 6; i < len(f); i++ {
		name, value, ok := strings.Cut(f[i], ":")
		switch {
		case f[i] == "send" || f[i] == "pacing_rate" || f[i] == "delivery_rate":
			i++
			name, value = f[i-1], strings.TrimSuffix(f[i], "bps")
		case f[i] == "<->" || f[i] == "-->" || f[i] == "<--" || f[i] == "---":
			name, value = "arrow", f[i]
		case f[i] == "tcp-ulp-mptcp":
			name, value = "ulp", "mptcp"
		case !ok && (f[i] == "cubic" || f[i] == "bbr" || f[i] == "reno"):
			name, value = "congestion", f[i]
		case !ok:
			value = "yes"
		case name == "token" && s["netid"] == "tcp":
			name = "tokens"
		case name == "retrans":
			s["retrans_now"], value, _ = strings.Cut(value, "/")
		case name == "rtt":
			value, s["rttvar"], _ = strings.Cut(value, "/")
		case name == "skmem":
			for _, m := range strings.Split(strings.Trim(value, "()"), ",") {
				n := strings.IndexAny(m, "0123456789")
				s["skmem_"+m[:n]] = m[n:]
			}
			continue
		case name == "busy" || name == "rwnd_limited" || name == "sndbuf_limited":
			value, _, _ = strings.Cut(value, "(")
			value = strings.TrimSuffix(value, "ms")
		}
		s[name] = value
	}
	return s, nil
}

// A how says how a field of an active socket may change.
type how int

const (
	static how = iota // never changes
	grows             // never decreases
	clock             // increases while no packet is sent or received
	moves             // changes with each packet
)

// A ssField describes a value in the output of ss, and its place in lklctl's JSON.
type ssField struct {
	path  string // in the JSON; after "+", a factor follows
	scale float64
	how   how
	zero  float64 // the value if ss omits the field
}

// ssNumbers are the fields of ss with numbers.
var ssNumbers = map[string]ssField{
	"recvq": {"recv_q", 1, moves, 0}, "sendq": {"send_q", 1, moves, 0},
	"uid": {"uid", 1, static, 0}, "backoff": {"tcp_info.backoff", 1, moves, 0},
	"rto": {"tcp_info.rto_us", 1e-3, moves, 0}, "rtt": {"tcp_info.rtt_us", 1e-3, moves, 0}, "rttvar": {"tcp_info.rttvar_us", 1e-3, moves, 0},
	"ato": {"tcp_info.ato_us", 1e-3, moves, 0}, "minrtt": {"tcp_info.min_rtt_us", 1e-3, moves, 0}, "rcv_rtt": {"tcp_info.rcv_rtt_us", 1e-3, moves, 0},
	"mss": {"tcp_info.snd_mss", 1, moves, 0}, "rcvmss": {"tcp_info.rcv_mss", 1, moves, 0}, "advmss": {"tcp_info.advmss", 1, static, 0}, "pmtu": {"tcp_info.pmtu", 1, static, 0},
	"cwnd": {"tcp_info.cwnd", 1, moves, 0}, "ssthresh": {"tcp_info.ssthresh", 1, moves, 0},
	"bytes_sent": {"tcp_info.bytes_sent", 1, grows, 0}, "bytes_retrans": {"tcp_info.bytes_retrans", 1, grows, 0},
	"bytes_acked": {"tcp_info.bytes_acked", 1, grows, 0}, "bytes_received": {"tcp_info.bytes_received", 1, grows, 0},
	"segs_out": {"tcp_info.segs_out", 1, grows, 0}, "segs_in": {"tcp_info.segs_in", 1, grows, 0},
	"data_segs_out": {"tcp_info.data_segs_out", 1, grows, 0}, "data_segs_in": {"tcp_info.data_segs_in", 1, grows, 0},
	"delivered": {"tcp_info.delivered", 1, grows, 0}, "delivered_ce": {"tcp_info.delivered_ce", 1, grows, 0},
	"lastsnd": {"tcp_info.last_data_sent_ms", 1, clock, 0}, "lastrcv": {"tcp_info.last_data_recv_ms", 1, clock, 0}, "lastack": {"tcp_info.last_ack_recv_ms", 1, clock, 0},
	"pacing_rate": {"tcp_info.pacing_rate", 8, moves, 0}, "delivery_rate": {"tcp_info.delivery_rate", 8, moves, 0},
	"busy": {"tcp_info.busy_us", 1e-3, grows, 0}, "rwnd_limited": {"tcp_info.rwnd_limited_us", 1e-3, grows, 0}, "sndbuf_limited": {"tcp_info.sndbuf_limited_us", 1e-3, grows, 0},
	"unacked": {"tcp_info.unacked", 1, moves, 0}, "retrans_now": {"tcp_info.retrans", 1, moves, 0}, "retrans": {"tcp_info.total_retrans", 1, grows, 0},
	"lost": {"tcp_info.lost", 1, moves, 0}, "sacked": {"tcp_info.sacked", 1, moves, 0}, "reordering": {"tcp_info.reordering", 1, moves, 3},
	"dsack_dups": {"tcp_info.dsack_dups", 1, grows, 0}, "reord_seen": {"tcp_info.reord_seen", 1, grows, 0}, "rcv_ooopack": {"tcp_info.rcv_ooopack", 1, grows, 0},
	"rcv_space": {"tcp_info.rcv_space", 1, moves, 0}, "rcv_ssthresh": {"tcp_info.rcv_ssthresh", 1, moves, 0},
	"notsent": {"tcp_info.notsent", 1, moves, 0}, "snd_wnd": {"tcp_info.snd_wnd", 1, moves, 0}, "rehash": {"tcp_info.rehash", 1, grows, 0},
	"skmem_r": {"skmem.rmem_alloc_bytes", 1, moves, 0}, "skmem_rb": {"skmem.rcvbuf_bytes", 1, moves, 0}, "skmem_t": {"skmem.wmem_alloc_bytes", 1, moves, 0},
	"skmem_tb": {"skmem.sndbuf_bytes", 1, moves, 0}, "skmem_f": {"skmem.fwd_alloc_bytes", 1, moves, 0}, "skmem_w": {"skmem.wmem_queued_bytes", 1, moves, 0},
	"skmem_o": {"skmem.optmem_bytes", 1, moves, 0}, "skmem_bl": {"skmem.backlog_bytes", 1, moves, 0}, "skmem_d": {"skmem.drops", 1, grows, 0},
	"subflows": {"mptcp_info.extra_subflows", 1, static, 0}, "subflows_max": {"mptcp_info.extra_subflows_max", 1, static, 0},
	"add_addr_accepted_max": {"mptcp_info.add_addr_accepted_max", 1, static, 0}, "add_addr_signal": {"mptcp_info.add_addr_signal", 1, static, 0},
	"add_addr_accepted": {"mptcp_info.add_addr_accepted", 1, static, 0},
}

// ssWords are the fields of ss whose values are text. Each has a function that checks lklctl's JSON.
var ssWords = map[string]func(s ourSocket, value string) bool{
	"netid": func(s ourSocket, v string) bool {
		return s.text("proto") == v || v == "udp" && s.text("proto") == "raw"
	},
	"state": func(s ourSocket, v string) bool { return s.text("state") == v },
	"local": func(s ourSocket, v string) bool { // for a bound device, ss appends "%" and the device's name
		addr, dev, bound := strings.Cut(v, "%")
		if bound {
			name, port, _ := strings.Cut(dev, ":")
			addr, bound = addr+":"+port, s.text("iface") == name && s.text("ifindex") != "0"
			return bound && sameAddr(s.text("local"), addr)
		}
		return sameAddr(s.text("local"), v) && s.text("ifindex") == "0"
	},
	"peer":       func(s ourSocket, v string) bool { return sameAddr(s.text("remote"), v) },
	"congestion": func(s ourSocket, v string) bool { return s.text("congestion") == v },
	"ts":         func(s ourSocket, _ string) bool { return s.option("timestamps") },
	"sack":       func(s ourSocket, _ string) bool { return s.option("sack") },
	"ecn":        func(s ourSocket, _ string) bool { return s.option("ecn") },
	"ecnseen":    func(s ourSocket, _ string) bool { return s.option("ecn-seen") },
	"fastopen":   func(s ourSocket, _ string) bool { return s.option("syn-data") },
	"wscale": func(s ourSocket, v string) bool {
		return s.option("wscale") && s.text("tcp_info.snd_wscale")+","+s.text("tcp_info.rcv_wscale") == v
	},
	"app_limited": func(s ourSocket, _ string) bool { return s.text("tcp_info.delivery_rate_app_limited") == "true" },
	"sk": func(s ourSocket, v string) bool {
		n, err := strconv.ParseUint(v, 16, 64)
		return err == nil && s.text("cookie") == fmt.Sprint(n)
	},
	"v6only": func(s ourSocket, v string) bool { return (s.text("v6only") == "true") == (v == "1") },
	"arrow": func(s ourSocket, v string) bool {
		return map[string]string{"<->": "", "-->": "rcv", "<--": "snd", "---": "both"}[v] == s.text("shutdown")
	},
	"users": func(s ourSocket, v string) bool { return s.users() == v },
	"ulp":   func(s ourSocket, _ string) bool { return s.at("subflow") != nil },
	"tokens": func(s ourSocket, v string) bool {
		return v == fmt.Sprintf("%04x(id:%s)/%04x(id:%s)", s.number("subflow.remote_token"), orZero(s.text("subflow.remote_id")), s.number("subflow.token"), orZero(s.text("subflow.id")))
	},
	"token":      func(s ourSocket, v string) bool { return v == fmt.Sprintf("%x", s.number("mptcp_info.token")) },
	"remote_key": func(s ourSocket, _ string) bool { return s.text("mptcp_info.remote_key_received") == "true" },
	"fallback":   func(s ourSocket, _ string) bool { return s.text("mptcp_info.fallback") == "true" },
	"flags":      func(s ourSocket, v string) bool { return flagLetters(s.text("subflow.flags")) == v },
	"timer":      sameTimer,
}

// ssNotOurs are fields that need no comparison: the inode belongs to the descriptor,
// "send" is computed from other fields, and the others change with each packet.
var ssNotOurs = map[string]bool{"ino": true, "send": true, "seq": true, "sfseq": true, "ssnoff": true, "maplen": true, "write_seq": true, "snd_una": true, "rcv_nxt": true}

// flagLetters returns ss's letters for the flags of a subflow.
func flagLetters(names string) string {
	letters := map[string]string{
		"capable-remote": "M", "capable-local": "m", "join-remote": "J", "join-local": "j", "backup-remote": "B", "backup-local": "b",
		"fully-established": "e", "connected": "c", "mapped": "v",
	}
	s := ""
	for _, n := range strings.Split(names, ",") {
		s += letters[n]
	}
	return s
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

// sameAddr compares ADDRESS:PORT; ss prints * for the unspecified address of both
// families.
func sameAddr(ours, theirs string) bool {
	return ours == theirs || theirs == "*:*" && ours == "[::]:*" || strings.HasPrefix(theirs, "*:") && "[::]"+theirs[1:] == ours
}

// sameTimer compares (NAME,TIME,RETRANSMITS), except for the time.
func sameTimer(s ourSocket, v string) bool {
	f := strings.Split(strings.Trim(v, "()"), ",")
	return len(f) == 3 && s.text("timer.name") == f[0] && s.text("timer.retransmits") == f[2]
}

// ourSocket is a socket in lklctl's JSON.
type ourSocket map[string]any

func (s ourSocket) at(path string) any {
	var v any = map[string]any(s)
	for _, name := range strings.Split(path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

func (s ourSocket) text(path string) string {
	switch v := s.at(path).(type) {
	case nil:
		return ""
	case string:
		return v
	default:
		return fmt.Sprint(v)
	}
}

func (s ourSocket) number(path string) uint64 {
	n, _ := strconv.ParseUint(s.text(path), 10, 64) // an absent field is 0
	return n
}

// value returns a field in ss's unit; ok is false if it is unknown.
func (s ourSocket) value(f ssField) (v float64, ok bool) {
	n, isNumber := s.at(f.path).(json.Number)
	if !isNumber {
		return f.zero, false
	}
	v, err := n.Float64()
	return v * f.scale, err == nil
}

func (s ourSocket) option(name string) bool {
	return strings.Contains(","+s.text("tcp_info.options")+",", ","+name+",")
}

// users returns the processes in the format of ss -p.
func (s ourSocket) users() string {
	var all []string
	procs, _ := s.at("processes").([]any)
	for _, p := range procs {
		proc := ourSocket(p.(map[string]any))
		fds, _ := proc.at("fds").([]any)
		for _, fd := range fds {
			all = append(all, fmt.Sprintf("(%q,pid=%s,fd=%v)", proc.text("comm"), proc.text("pid"), fd))
		}
	}
	return "(" + strings.Join(all, ",") + ")"
}

// nearly reports whether a and b are the same number within the precision of ss, which
// prints six digits, and for some values whole milliseconds.
func nearly(a, b float64, name string) bool {
	slack := 1e-5 * math.Max(math.Abs(a), math.Abs(b))
	if name == "busy" || name == "rwnd_limited" || name == "sndbuf_limited" {
		slack = 1
	}
	return math.Abs(a-b) <= slack
}
