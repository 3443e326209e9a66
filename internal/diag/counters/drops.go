// SPDX-License-Identifier: Apache-2.0

package counters

import (
	"strings"

	"github.com/lklrun/lklrun/internal/diag/drops"
)

// dropGroups are the first parts of the names, by the kind of event.
var dropGroups = map[string]string{
	drops.Drop:          "drops.",
	drops.ResetSent:     "resets_sent.",
	drops.ResetReceived: "resets_received.",
	drops.Retransmit:    "retransmits.",
}

// parseDrops parses /proc/net/drop_counts.
func parseDrops(text string) (Set, error) {
	counts, err := drops.ParseCounts(text)
	if err != nil {
		return nil, errForm
	}
	var all Set
	for _, c := range counts {
		group := dropGroups[c.Kind]
		if group == "" {
			return nil, errForm
		}
		all = append(all, based(group+c.Reason, group+"reason", unsigned(c.Count), Label{"reason", c.Reason}))
	}
	return all, nil
}

// dropsBase returns the base of a drop's or a reset's counter.
func dropsBase(name string) string {
	for _, group := range dropGroups {
		if strings.HasPrefix(name, group) {
			return group + "reason"
		}
	}
	return ""
}
