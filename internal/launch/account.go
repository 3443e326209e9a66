// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/lklrun/lklrun/internal/stackconn"
)

// account logs which processes used the stack, from what the stack host told
// with the target's end.
func (r *run) account(counters string) {
	if counters == "" || !r.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	stats, err := stackconn.ParseStats([]byte(counters))
	if err != nil {
		r.log.Debug("no account of this run", "error", err)
		return
	}
	for _, line := range accountOf(stats) {
		r.log.Debug(line)
	}
}

// accountOf reads the engine's counters (csrc/supervise/engine.c, proc.c): one
// line a process that made sockets, and one for all the data.
func accountOf(stats []stackconn.Stat) []string {
	var lines []string
	value := map[string]int64{}
	for _, s := range stats {
		value[s.Name] = s.Value
		f := strings.SplitN(s.Name, ".", 3) // proc.PID.COMM.stack, COMM with dots or not
		if len(f) != 3 || f[0] != "proc" && f[0] != "ended" {
			continue
		}
		if comm, ok := strings.CutSuffix(f[2], ".stack"); ok && s.Value > 0 {
			lines = append(lines, fmt.Sprintf("%s(%s) made %s on the stack", comm, f[1], sockets(s.Value)))
		}
		if comm, ok := strings.CutSuffix(f[2], ".refused"); ok && s.Value > 0 {
			lines = append(lines, fmt.Sprintf("%s(%s) was refused %s that the stack has not", comm, f[1], sockets(s.Value)))
		}
	}
	if value["sockets.stack"] == 0 && value["sockets.refused"] == 0 {
		return append(lines, "nothing used the stack")
	}
	return append(lines, fmt.Sprintf("in all %s, %d bytes received, %d sent; %d datagrams received, %d sent",
		sockets(value["sockets.stack"]), value["bytes.received"], value["bytes.sent"],
		value["datagrams.received"], value["datagrams.sent"]))
}

func sockets(n int64) string {
	if n == 1 {
		return "1 socket"
	}
	return fmt.Sprintf("%d sockets", n)
}
