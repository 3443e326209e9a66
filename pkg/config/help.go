// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// helpWidth is the width of a terminal.
const helpWidth = 80

// InterfaceHelp explains the types and the keys of --if, wrapped for a
// terminal.
func InterfaceHelp() string {
	var b strings.Builder
	for _, t := range interfaceTypes {
		helpLine(&b, t.spec(), t.Help)
	}
	b.WriteByte('\n')
	for _, k := range interfaceKeys() {
		name, help := k.name, k.help
		switch {
		case k.flag:
		case strings.Contains(k.form, "|") && !k.list:
			name, help = k.name+"=", help+": "+k.form
		default:
			name += "=" + k.form
		}
		if len(name) > helpColumn-3 {
			name, help = k.name+"=", k.form+", "+help
		}
		if k.list {
			help += "; repeatable"
		}
		helpLine(&b, name, help)
	}
	return b.String()
}

// helpColumn is the column of the explanations.
const helpColumn = 19

func helpLine(b *strings.Builder, name, help string) {
	line := fmt.Sprintf("  %-*s", helpColumn-3, name)
	for _, w := range strings.Fields(help) {
		if len(line)+1+len(w) > helpWidth {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", helpColumn-1)
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}
