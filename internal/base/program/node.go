// SPDX-License-Identifier: Apache-2.0

package program

import "strings"

// NodeMark is the first line of the script that a node of a lab runs (pkg/lab). The words
// of its command are sh, -c, the script, sh, and then those of the node's own program.
const NodeMark = "# a node of a lab\n"

// Shown returns the command that a user recognizes: for a node of a lab, the node's own
// program, or the command of the script's last line if it has none.
func Shown(words []string) []string {
	if len(words) < 4 || !strings.HasPrefix(words[2], NodeMark) {
		return words
	}
	if len(words) > 4 {
		return words[4:]
	}
	last := words[2][strings.LastIndex(words[2], "\n")+1:]
	return strings.Fields(strings.TrimPrefix(last, "exec "))
}
