// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lklrun/lklrun/internal/stackconn"
	"github.com/lklrun/lklrun/pkg/config"
)

// ExitUnmet is lklrun's exit status when its target ended with 0, but not all of
// it on the stack as --require wants it.
const ExitUnmet = 123

// account is what the stack host told with the target's end: MPTCP's counters of
// the stack under nstat(8)'s names, and the engine's (csrc/supervise/engine.c,
// proc.c).
type account struct {
	stats []stackconn.Stat
	value map[string]int64
}

// newAccount reads the text of the event; nil: there is none.
func newAccount(text string) (*account, error) {
	stats, err := stackconn.ParseStats([]byte(text))
	if err != nil || len(stats) == 0 {
		return nil, err
	}
	a := &account{stats, map[string]int64{}}
	for _, s := range stats {
		// The first of a name: those of processes, which choose theirs, come last.
		if _, known := a.value[s.Name]; !known {
			a.value[s.Name] = s.Value
		}
	}
	return a, nil
}

// keep takes the account that came with the target's end, and logs it.
func (r *run) keep(text string) {
	a, err := newAccount(text)
	if err != nil {
		r.log.Debug("no account of this run", "error", err)
	}
	if r.account = a; a == nil || !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	for _, line := range a.lines() {
		r.log.Debug(line)
	}
}

// lines tells the account: a line a process that made sockets, one for all the
// data, and one for MPTCP.
func (a *account) lines() []string {
	var lines []string
	for _, s := range a.stats {
		f := strings.SplitN(s.Name, ".", 3) // proc.PID.COMM.stack, COMM with dots or not
		if len(f) != 3 || f[0] != "proc" && f[0] != "ended" || s.Value == 0 {
			continue
		}
		if comm, ok := strings.CutSuffix(f[2], ".stack"); ok {
			lines = append(lines, fmt.Sprintf("%s(%s) made %s on the stack", comm, f[1], count(s.Value, "socket")))
		}
		if comm, ok := strings.CutSuffix(f[2], ".refused"); ok {
			lines = append(lines, fmt.Sprintf("%s(%s) was refused %s that the stack has not", comm, f[1], count(s.Value, "socket")))
		}
	}
	v := a.value
	if v["sockets.stack"] == 0 && v["sockets.refused"] == 0 {
		return append(lines, "nothing used the stack")
	}
	lines = append(lines, fmt.Sprintf("in all %s, %d bytes received, %d sent; %d datagrams received, %d sent",
		count(v["sockets.stack"], "socket"), v["bytes.received"], v["bytes.sent"],
		v["datagrams.received"], v["datagrams.sent"]))
	if n := a.mptcp(); n > 0 {
		lines = append(lines, fmt.Sprintf("%s by MPTCP", count(n, "connection")))
	}
	return lines
}

// mptcp is how many connections MPTCP was agreed on for, made and accepted.
func (a *account) mptcp() int64 {
	return a.value["MPTcpExtMPCapableSYNACKRX"] + a.value["MPTcpExtMPCapableACKRX"]
}

// fallbacks are the counters of connections that became plain TCP, before MPTCP
// was agreed on or after (net/mptcp/mib.h).
var fallbacks = []string{
	"MPCapableFallbackACK", "MPCapableFallbackSYNACK", "MPCapableSYNTXDrop", "MPCapableSYNTXDisabled",
	"MPFallbackTokenInit", "MPCapableDataFallback", "MD5SigFallback", "DssFallback",
	"SimultConnectFallback", "DSSCorruptionFallback", "InfiniteMapTx", "InfiniteMapRx",
}

// unmet says what is missing of a requirement, config.RequireStack or
// config.RequireMPTCP; "" when nothing is.
func (a *account) unmet(require string) string {
	switch {
	case require == "":
		return ""
	case a == nil:
		return "the stack host gave no account"
	case a.value["sockets.stack"] == 0:
		return "no socket came from the stack"
	case a.value["sockets.refused"] > 0:
		return count(a.value["sockets.refused"], "socket") + " that the stack has not"
	case require != config.RequireMPTCP:
		return ""
	}
	var fell []string
	for _, name := range fallbacks {
		if n := a.value["MPTcpExt"+name]; n > 0 {
			fell = append(fell, fmt.Sprintf("%s %d", name, n))
		}
	}
	plain := max(0, a.value["sockets.connected"]-a.value["MPTcpExtMPCapableSYNACKRX"]) +
		max(0, a.value["sockets.accepted"]-a.value["MPTcpExtMPCapableACKRX"])
	switch {
	case len(fell) > 0:
		return "MPTCP fell back to TCP (" + strings.Join(fell, ", ") + ")"
	case plain > 0:
		return count(plain, "connection") + " by TCP"
	case a.mptcp() == 0:
		return "there was no MPTCP connection"
	}
	return ""
}

// count writes a number of things.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
