// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lklrun/lklrun/internal/cli"
	"github.com/lklrun/lklrun/internal/instance"
	"github.com/lklrun/lklrun/internal/stackconn"
)

// counter is a number under its name.
type counter struct {
	name  string
	value string // decimal, perhaps negative: as the stack wrote it
}

func (c *ctl) countersCommand() *cobra.Command {
	var zeros bool
	cmd := &cobra.Command{
		Use:   "counters [-z] [PATTERN...]",
		Short: "show the stack's counters",
		Long: `counters shows what the stack counts, under the names that nstat(8) uses:
protocols (/proc/net/snmp, snmp6, netstat: TcpActiveOpens, MPTcpExtMPJoinSynTx,
...), each interface (eth0.rx_bytes, ...), and the engine that carries the
program's sockets.

Counters that are zero are left out of the table unless -z or a pattern is
given; JSON has them all. One that the stack does not have appears nowhere. A
pattern is a part of the name, or a glob such as 'Tcp*Retrans*'.`,
		Example: `  lklctl counters
  lklctl counters MPTcp
  lklctl counters 'eth*.rx_*' -o json`,
		RunE: c.query(func(ctx context.Context, info *instance.Info, conn *stackconn.Conn, args []string) error {
			all, err := readCounters(ctx, conn)
			if err != nil {
				return err
			}
			var kept []setting
			for _, n := range all {
				zero := n.value == "0" && !zeros && len(args) == 0 && c.output == cli.OutputTable
				if matches(n.name, args) && !zero {
					kept = append(kept, setting{n.name, n.value})
				}
			}
			t := cli.NewTable("NAME", ">VALUE")
			for _, n := range kept {
				t.Row(n.key, n.value)
			}
			return c.show(counterObject(kept), len(kept), c.nothing("instance %q has no such counter", info.Name), t.Write)
		}),
	}
	c.flags(cmd.Flags(), true)
	cmd.Flags().BoolVarP(&zeros, "zeros", "z", false, "show counters that are zero")
	return cmd
}

// readCounters reads every source; one that the stack does not have is absent.
func readCounters(ctx context.Context, conn *stackconn.Conn) ([]counter, error) {
	var all []counter
	for _, src := range []struct {
		path  string
		parse func(string) ([]counter, error)
	}{
		{"/proc/net/snmp", parsePaired},
		{"/proc/net/snmp6", parseSingle},
		{"/proc/net/netstat", parsePaired},
		{"/proc/net/dev", parseInterfaces},
	} {
		b, err := conn.ReadFile(ctx, src.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		some, err := src.parse(string(b))
		if err != nil {
			return nil, &fs.PathError{Op: "reading", Path: src.path, Err: err}
		}
		all = append(all, some...)
	}
	stats, err := conn.Stats(ctx)
	if err != nil {
		return nil, err
	}
	return append(all, engineCounters(stats)...), nil
}

// errCounters is what the parsers say of text that has another form.
var errCounters = errors.New("not in the form of counters")

// checked refuses values that are no integers, and writes the others as JSON
// wants numbers: without + or zeros in front.
func checked(all []counter) ([]counter, error) {
	for i, n := range all {
		if v, err := strconv.ParseInt(n.value, 10, 64); err == nil {
			all[i].value = strconv.FormatInt(v, 10)
		} else if v, err := strconv.ParseUint(n.value, 10, 64); err == nil {
			all[i].value = strconv.FormatUint(v, 10)
		} else {
			return nil, errCounters
		}
	}
	return all, nil
}

// parsePaired reads /proc/net/snmp and /proc/net/netstat: a line of names and a
// line of values, both with the group's name in front.
func parsePaired(text string) ([]counter, error) {
	var all []counter
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		group, names, ok := strings.Cut(lines[i], ":")
		group2, values, ok2 := strings.Cut(lines[i+1], ":")
		n, v := strings.Fields(names), strings.Fields(values)
		if !ok || !ok2 || group != group2 || len(n) != len(v) {
			return nil, errCounters
		}
		for j := range n {
			all = append(all, counter{group + n[j], v[j]})
		}
	}
	if len(lines)%2 != 0 {
		return nil, errCounters
	}
	return checked(all)
}

// parseSingle reads /proc/net/snmp6: a name and a value on each line.
func parseSingle(text string) ([]counter, error) {
	var all []counter
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, errCounters
		}
		all = append(all, counter{f[0], f[1]})
	}
	return checked(all)
}

// deviceColumns are the columns of /proc/net/dev (net/core/net-procfs.c) under
// the names of struct rtnl_link_stats64; frame and colls, carrier are sums of
// several there.
var deviceColumns = []string{
	"rx_bytes", "rx_packets", "rx_errors", "rx_dropped", "rx_fifo", "rx_frame", "rx_compressed", "rx_multicast",
	"tx_bytes", "tx_packets", "tx_errors", "tx_dropped", "tx_fifo", "tx_collisions", "tx_carrier", "tx_compressed",
}

func parseInterfaces(text string) ([]counter, error) {
	var all []counter
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) < 2 {
		return nil, errCounters
	}
	for _, line := range lines[2:] { // two lines of headings
		name, values, ok := strings.Cut(line, ":")
		f := strings.Fields(values)
		if !ok || len(f) != len(deviceColumns) {
			return nil, errCounters
		}
		for i, v := range f {
			all = append(all, counter{strings.TrimSpace(name) + "." + deviceColumns[i], v})
		}
	}
	return checked(all)
}

// engineCounters puts the stack host's own counters into a group of their own.
func engineCounters(stats []stackconn.Stat) []counter {
	var all []counter
	for _, s := range stats {
		all = append(all, counter{"engine." + s.Name, itoa(s.Value)})
	}
	return all
}
