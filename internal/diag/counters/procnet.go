// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"fmt"
	"strconv"
	"strings"
)

// parsePaired parses /proc/net/snmp and /proc/net/netstat: each group has a line of names
// and a line of values, which both start with the group's name.
func parsePaired(text string) (Set, error) {
	var all Set
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines)%2 != 0 {
		return nil, errForm
	}
	for i := 0; i < len(lines); i += 2 {
		group, names, ok := strings.Cut(lines[i], ":")
		group2, values, ok2 := strings.Cut(lines[i+1], ":")
		n, v := strings.Fields(names), strings.Fields(values)
		if !ok || !ok2 || group != group2 || len(n) != len(v) {
			return nil, errForm
		}
		for j := range n {
			value, err := ParseValue(v[j])
			if err != nil {
				return nil, err
			}
			all = append(all, named(group+n[j], value))
		}
	}
	return all, nil
}

// parseSingle parses /proc/net/snmp6: a name and a value per line.
func parseSingle(text string) (Set, error) {
	var all Set
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, errForm
		}
		v, err := ParseValue(f[1])
		if err != nil {
			return nil, err
		}
		all = append(all, named(f[0], v))
	}
	return all, nil
}

// parseSockstat parses /proc/net/sockstat and sockstat6: "TCP: inuse 2 orphan 0".
func parseSockstat(text string) (Set, error) {
	var all Set
	for line := range strings.Lines(text) {
		group, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		if !ok || len(f)%2 != 0 {
			return nil, errForm
		}
		for i := 0; i < len(f); i += 2 {
			v, err := ParseValue(f[i+1])
			if err != nil {
				return nil, err
			}
			all = append(all, named("sockstat."+group+"_"+f[i], v))
		}
	}
	return all, nil
}

// softnetColumns are the columns of /proc/net/softnet_stat, which has one line of
// hexadecimal numbers per CPU (softnet_seq_show, net/core/net-procfs.c). Columns named ""
// are always 0. Older kernels have fewer columns.
var softnetColumns = []string{
	"processed", "dropped", "time_squeeze", "", "", "", "", "", "", "received_rps", "flow_limit_count",
	"backlog", "cpu", "input_backlog", "process_backlog",
}

func parseSoftnet(text string) (Set, error) {
	var all Set
	row := 0
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 3 {
			return nil, errForm
		}
		n := make([]uint64, len(f))
		for i := range f {
			var err error
			if n[i], err = strconv.ParseUint(f[i], 16, 64); err != nil {
				return nil, errForm
			}
		}
		cpu := strconv.Itoa(row) // offline CPUs have no line
		if len(n) > 12 {
			cpu = strconv.FormatUint(n[12], 10)
		}
		for i, column := range softnetColumns {
			if i < len(n) && column != "" && column != "cpu" {
				all = append(all, named(fmt.Sprintf("softnet%s.%s", cpu, column), unsigned(n[i]), Label{"cpu", cpu}))
			}
		}
		row++
	}
	return all, nil
}
