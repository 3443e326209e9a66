// SPDX-License-Identifier: Apache-2.0

package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lklrun/lklrun/internal/diag/account"
	"github.com/lklrun/lklrun/internal/diag/counters"
	"github.com/lklrun/lklrun/internal/diag/sysctl"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stack/klog"
	"github.com/lklrun/lklrun/internal/stack/sockdiag"
	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Look holds the sockets and counters of a stack at one moment.
type Look struct {
	Time     time.Time
	Sockets  []sockdiag.Socket
	Counters counters.Set
}

// Now reads the sockets and counters of a stack.
func Now(ctx context.Context, c *stackconn.Conn) (*Look, error) {
	l := &Look{Time: time.Now()}
	var err error
	if l.Counters, err = counters.Read(ctx, c); err != nil {
		return nil, err
	}
	for _, p := range []sockdiag.Proto{sockdiag.MPTCP, sockdiag.TCP, sockdiag.UDP} {
		some, err := sockdiag.List(ctx, c, p)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		l.Sockets = append(l.Sockets, some...) // an old stack does not know this kind of socket and returns none
	}
	return l, nil
}

// AddSnapshot adds the sockets and counters in l; when describes the time of l.
func (b *Report) AddSnapshot(l *Look, when string) {
	if text, err := json.MarshalIndent(l.Sockets, "", "  "); err != nil {
		b.NoteMissing("sockets.json", err)
	} else {
		b.add("sockets.json", "sockets "+when+", as sock_diag reports them", string(text)+"\n")
	}
	var t strings.Builder
	for i := range l.Counters {
		if n := &l.Counters[i]; !n.Value.IsZero() {
			fmt.Fprintf(&t, "%s %s\n", n.Name, n.Value)
		}
	}
	b.Add("counters.txt", "counters "+when+", without zero values", t.String())
}

// AddRun adds the content of the run directory: the state, the plan, the journal of
// changes to undo, and the console's log.
func (b *Report) AddRun(dir string, s *instance.State) {
	shown := *s
	shown.Command = Words(s.Command)
	b.AddJSON(instance.StateFile, "the instance", shown)
	for _, f := range []struct{ name, what string }{
		{instance.PlanFile, "the plan of the run, with all settings"},
		{instance.JournalFile, "the changes on the host that the run undoes"},
		{instance.ResolvFile, "the program's name servers"},
		{instance.LogFile, "output of lklhost and of the kernel's console"},
	} {
		path := filepath.Join(dir, f.name)
		b.AddFile(f.name, f.what, path)
	}
}

// AddStats adds the engine's counters, which are available even after a panic, and the
// statistics of the processes.
func (b *Report) AddStats(ctx context.Context, c *stackconn.Conn) {
	stats, err := c.Stats(ctx)
	engine := slices.ContainsFunc(stats, func(s stackconn.Stat) bool { return strings.HasPrefix(s.Name, "sockets.") })
	if err == nil && !engine { // only the counters of lklhost
		err = errors.New("they were in the program's process, which has ended")
	}
	if err != nil {
		b.NoteMissing("account.json, engine.txt", err)
		return
	}
	b.AddJSON("account.json", "the stack and peers of each process", account.Parse(stats))
	var t strings.Builder
	for _, s := range stats {
		fmt.Fprintf(&t, "%s %d\n", s.Name, s.Value)
	}
	b.Add("engine.txt", "the engine's counters", t.String())
}

// AddKernelLog adds the kernel log that lklhost has kept.
func (b *Report) AddKernelLog(ctx context.Context, c *stackconn.Conn) {
	log, err := c.Log(ctx)
	if err != nil {
		b.NoteMissing("dmesg.txt", err)
		return
	}
	b.Add("dmesg.txt", "the last lines of the kernel's log", strings.ToValidUTF8(string(log), "?"))
}

// stackFiles are files of the stack that describe its network.
var stackFiles = []struct{ path, what string }{
	{"/proc/version", "the kernel"},
	{"/proc/net/dev", "interfaces"},
	{"/proc/net/fib_trie", "IPv4 addresses and routes"},
	{"/proc/net/route", "IPv4 routes of the main table"},
	{"/proc/net/if_inet6", "IPv6 addresses"},
	{"/proc/net/ipv6_route", "IPv6 routes"},
	{"/proc/net/arp", "IPv4 neighbours"},
	{"/proc/meminfo", "memory"},
}

// AddStack adds the data of a stack that still answers, and records which data is
// missing.
func (b *Report) AddStack(ctx context.Context, c *stackconn.Conn) {
	var log strings.Builder
	err := klog.Read(ctx, c, false, func(r klog.Record) error {
		if r.Time != nil {
			log.WriteString(r.Time.Format(time.RFC3339Nano) + " ")
		}
		fmt.Fprintf(&log, "<%s> %s\n", r.Level, r.Text)
		return nil
	})
	if err != nil {
		b.AddKernelLog(ctx, c)
	} else {
		b.Add("dmesg.txt", "the kernel's log", log.String())
	}
	if l, err := Now(ctx, c); err != nil {
		b.NoteMissing("sockets.json, counters.txt", err)
	} else {
		b.AddSnapshot(l, "at that time")
	}
	b.AddStats(ctx, c)
	if all, err := sysctl.Below(ctx, c, "", nil); err != nil {
		b.NoteMissing("sysctl.conf", err)
	} else {
		var t strings.Builder
		_, _ = sysctl.Save(&t, all) // cannot fail: t is in memory
		b.Add("sysctl.conf", "all settings of the stack", t.String())
	}
	for _, f := range stackFiles {
		text, err := c.ReadFile(ctx, f.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			b.NoteMissing(f.path, err)
		default:
			b.Add(strings.ReplaceAll(strings.TrimPrefix(f.path, "/"), "/", "_")+".txt", f.what, string(text))
		}
	}
}
