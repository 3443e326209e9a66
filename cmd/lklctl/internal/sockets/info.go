// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/sockdiag"
)

// infoWords is a list of NAME:VALUE. Absent values are omitted.
type infoWords []string

func (w *infoWords) add(name, value string) {
	if value != "" {
		*w = append(*w, name+":"+value)
	}
}

// positive adds a value only if it is positive.
func (w *infoWords) positive(name string, v sockdiag.Value) {
	if v.N != 0 {
		w.add(name, Number(v))
	}
}

func (w *infoWords) word(text string, on bool) {
	if on && text != "" {
		*w = append(*w, text)
	}
}

// groups returns the additional information about a socket that the flags
// select.
func (o *netstatOptions) groups(s sockdiag.Socket) []group {
	var all []group
	if o.processes {
		all = append(all, group{"process", processWords(s.Processes)})
	}
	if o.info {
		all = append(all, infoGroups(s)...)
	}
	if o.timer {
		all = append(all, group{"timer", timerWords(s)})
	}
	if o.memory {
		all = append(all, group{"memory", memoryWords(s)})
	}
	if o.extended {
		all = append(all, group{"socket", socketWords(s)})
	}
	return all
}

// infoGroups returns the lines of -i. The names are those of ss(8), if ss shows the
// value.
func infoGroups(s sockdiag.Socket) []group {
	var all []group
	if i := s.TCP; i != nil && s.State != sockdiag.Listen {
		all = []group{
			{"congestion", congestionWords(s, i)},
			{"rtt", rttWords(i)},
			{"rates", rateWords(i)},
			{"losses", lossWords(i)},
			{"window", windowWords(i)},
			{"data", dataWords(i)},
		}
	}
	all = append(all, group{"path", pathWords(s)})
	if s.MPTCP != nil && s.State != sockdiag.Listen {
		all = append(all, group{"mptcp", mptcpWords(s.MPTCP)})
	}
	if f := s.Subflow; f != nil && len(f.Flags.Names()) > 0 {
		all = append(all, group{"subflow", subflowWords(f)})
	}
	return all
}

func mptcpWords(i *sockdiag.MPTCPInfo) (w infoWords) {
	w.add("token", Token(i.Token))
	w.word("fallback", i.Fallback)
	w.positive("extra_subflows", i.Subflows)
	w.add("bytes_sent", Bytes(i.BytesSent))
	w.add("bytes_acked", Bytes(i.BytesAcked))
	w.add("bytes_received", Bytes(i.BytesRecv))
	w.positive("retransmits", i.Retransmits)
	return w
}

func subflowWords(f *sockdiag.Subflow) (w infoWords) {
	w.add("token", Token(f.Token))
	w.add("id", Number(f.ID))
	return append(w, f.Flags.Names()...)
}

// processWords returns a word for each descriptor, in the form of ss -p.
func processWords(procs []sockdiag.Process) (w infoWords) {
	for _, p := range procs {
		if len(p.FDs) == 0 {
			w.word(fmt.Sprintf("(%q,pid=%d)", p.Comm, p.PID), true)
		}
		for _, fd := range p.FDs {
			w.word(fmt.Sprintf("(%q,pid=%d,fd=%d)", p.Comm, p.PID, fd), true)
		}
	}
	return w
}

func congestionWords(s sockdiag.Socket, i *sockdiag.TCPInfo) (w infoWords) {
	w.word(s.Congestion, true)
	w.word(i.CAStateName(), true)
	// BBR has phases of its own and no slow-start threshold.
	if slow, ok := i.SlowStart(); ok && s.BBR == nil {
		w.word("slow-start", slow)
		w.word("avoidance", !slow)
	}
	w.add("cwnd", Number(i.Cwnd))
	w.add("ssthresh", Number(i.Ssthresh))
	w.positive("unacked", i.Unacked)
	if b := s.BBR; b != nil {
		w.add("bw", Rate(b.BW))
		w.add("mrtt", Micros(b.MinRTT))
		w.add("pacing_gain", decimal(b.PacingGain))
		w.add("cwnd_gain", decimal(b.CwndGain))
	}
	if v := s.Vegas; v != nil && v.Enabled {
		w.add("vegas_rtt", Micros(v.RTT))
		w.add("vegas_minrtt", Micros(v.MinRTT))
		w.add("vegas_rttcnt", Number(v.RTTs))
	}
	if d := s.DCTCP; d != nil {
		w.word("fallback_mode", !d.Enabled)
		if d.Enabled {
			w.add("ce_state", Number(d.CEState))
			w.add("alpha", Number(d.Alpha))
			w.add("ab_ecn", Number(d.ECN))
			w.add("ab_tot", Number(d.Total))
		}
	}
	return w
}

func rttWords(i *sockdiag.TCPInfo) (w infoWords) {
	w.add("rtt", Micros(i.RTT))
	w.add("rttvar", Micros(i.RTTVar))
	w.add("minrtt", Micros(i.MinRTT))
	w.add("rcv_rtt", Micros(i.RcvRTT))
	w.add("rto", Micros(i.RTO))
	w.positive("backoff", i.Backoff)
	w.add("ato", Micros(i.ATO))
	return w
}

func rateWords(i *sockdiag.TCPInfo) (w infoWords) {
	w.add("pacing", Rate(i.PacingRate))
	w.add("max_pacing", Rate(i.MaxPacingRate))
	w.add("delivery", Rate(i.DeliveryRate))
	w.word("app_limited", i.AppLimited)
	if i.Busy.N != 0 {
		w.add("busy", Micros(i.Busy))
		w.add("rwnd_limited", share(i.RwndLimited, i.Busy))
		w.add("sndbuf_limited", share(i.SndbufLimited, i.Busy))
	}
	return w
}

func lossWords(i *sockdiag.TCPInfo) (w infoWords) {
	if i.Retrans.Known {
		w.add("retrans", Number(i.Retrans)+"/"+Number(i.TotalRetrans)) // as in ss: unacknowledged/total
	}
	if i.BytesRetrans.N != 0 {
		w.add("bytes_retrans", Bytes(i.BytesRetrans))
	}
	w.positive("retransmits", i.Retransmits)
	w.positive("probes", i.Probes)
	w.positive("lost", i.Lost)
	w.positive("sacked", i.Sacked)
	w.positive("fackets", i.Fackets)
	w.positive("dsack_dups", i.DSACKDups)
	w.positive("reord_seen", i.ReordSeen)
	w.positive("rcv_ooopack", i.RcvOOO)
	w.add("reordering", Number(i.Reordering))
	w.positive("total_rto", i.TotalRTO)
	w.positive("delivered_ce", i.DeliveredCE)
	w.positive("rehash", i.Rehash)
	return w
}

func windowWords(i *sockdiag.TCPInfo) (w infoWords) {
	w.add("snd_wnd", Number(i.SndWnd))
	w.add("rcv_wnd", Number(i.RcvWnd))
	w.add("rcv_space", Number(i.RcvSpace))
	w.add("rcv_ssthresh", Number(i.RcvSsthresh))
	if i.SndWScale.Known {
		w.add("wscale", Number(i.SndWScale)+","+Number(i.RcvWScale))
	}
	return w
}

func pathWords(s sockdiag.Socket) (w infoWords) {
	w.add("if", s.Iface)
	if i := s.TCP; i != nil && s.State != sockdiag.Listen {
		w.add("mss", Number(i.SndMSS))
		w.add("rcvmss", Number(i.RcvMSS))
		w.add("advmss", Number(i.AdvMSS))
		w.add("pmtu", Number(i.PMTU))
		w.add("options", strings.Join(i.Options.Names(), ","))
		w.add("fastopen_fail", i.TFOFail)
	}
	return w
}

func dataWords(i *sockdiag.TCPInfo) (w infoWords) {
	w.add("bytes_sent", Bytes(i.BytesSent))
	w.add("bytes_acked", Bytes(i.BytesAcked))
	w.add("bytes_received", Bytes(i.BytesRecv))
	w.positive("notsent", i.NotSent)
	w.add("segs_out", Number(i.SegsOut))
	w.add("segs_in", Number(i.SegsIn))
	w.add("data_segs_out", Number(i.DataSegsOut))
	w.add("data_segs_in", Number(i.DataSegsIn))
	w.add("delivered", Number(i.Delivered))
	w.add("lastsnd", Milliseconds(i.LastSent))
	w.add("lastrcv", Milliseconds(i.LastRecv))
	w.add("lastack", Milliseconds(i.LastAck))
	return w
}

func timerWords(s sockdiag.Socket) (w infoWords) {
	if t := s.Timer; t != nil {
		w.word(t.Name, true)
		w.add("expires", Milliseconds(sockdiag.Known(t.Expires)))
		w.add("retrans", strconv.Itoa(int(t.Retransmits)))
	}
	return w
}

// memoryWords returns the values of ss -m with their names spelled out.
func memoryWords(s sockdiag.Socket) (w infoWords) {
	if m := s.Memory; m != nil {
		w.add("rmem_alloc", Number(m.RmemAlloc))
		w.add("rcvbuf", Number(m.Rcvbuf))
		w.add("wmem_alloc", Number(m.WmemAlloc))
		w.add("sndbuf", Number(m.Sndbuf))
		w.add("fwd_alloc", Number(m.FwdAlloc))
		w.add("wmem_queued", Number(m.WmemQueued))
		w.add("optmem", Number(m.Optmem))
		w.add("backlog", Number(m.Backlog))
		w.add("drops", Number(m.Drops))
	}
	return w
}

func socketWords(s sockdiag.Socket) (w infoWords) {
	w.add("uid", Number(s.UID))
	w.add("ino", strconv.FormatUint(s.Inode, 10))
	w.add("sk", strconv.FormatUint(s.Cookie, 16))
	w.word("type:"+s.Type, s.Type != "")
	if s.IfIndex != 0 {
		w.add("dev", s.Iface)
	}
	if s.Mark.N != 0 {
		w.add("fwmark", fmt.Sprintf("%#x", s.Mark.N))
	}
	w.positive("cgroup", s.CgroupID)
	if s.TOS.N != 0 {
		w.add("tos", fmt.Sprintf("%#x", s.TOS.N))
	}
	if s.TClass.N != 0 {
		w.add("tclass", fmt.Sprintf("%#x", s.TClass.N))
	}
	w.add("shutdown", s.Shutdown)
	w.word("v6only", s.V6Only)
	return w
}

// Milliseconds formats a duration that the kernel reports in milliseconds.
func Milliseconds(v sockdiag.Value) string {
	if !v.Known {
		return ""
	}
	return Number(v) + "ms"
}

// share formats a part of a duration, with its percentage of the whole. It returns
// "" if the part is absent or 0.
func share(part, whole sockdiag.Value) string {
	if part.N == 0 {
		return ""
	}
	return fmt.Sprintf("%s(%.1f%%)", Micros(part), 100*float64(part.N)/float64(whole.N))
}

// decimal formats a factor without trailing zeros.
func decimal(f float64) string { return strconv.FormatFloat(f, 'g', 4, 64) }
