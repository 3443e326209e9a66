// SPDX-License-Identifier: Apache-2.0

package drops

import (
	"context"
	"strconv"
	"strings"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
)

// Tracking is the state of connection tracking (conntrack). A full table drops the packets of
// new connections without a rule, for the same reason as a rule.
type Tracking struct {
	Entries uint64 // connections in the table
	Dropped uint64 // packets that it has dropped since the stack's start
}

// ReadTracking reads the state of connection tracking. It is zero in a stack without it.
func ReadTracking(ctx context.Context, conn *stackconn.Conn) Tracking {
	b, err := conn.ReadFile(ctx, "/proc/net/stat/nf_conntrack")
	if err != nil {
		return Tracking{}
	}
	return parseTracking(string(b))
}

// parseTracking parses /proc/net/stat/nf_conntrack: names, and hexadecimal values per CPU.
func parseTracking(text string) (t Tracking) {
	lines := strings.Split(text, "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, word := range strings.Fields(line)[:min(len(names), len(strings.Fields(line)))] {
			n, err := strconv.ParseUint(word, 16, 64)
			switch {
			case err != nil:
			case names[i] == "entries": // of all CPUs, in each line
				t.Entries = n
			case names[i] == "drop":
				t.Dropped += n
			}
		}
	}
	return t
}
