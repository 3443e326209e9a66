// SPDX-License-Identifier: Apache-2.0

package app

import (
	"regexp"
	"strings"
)

// about is what `dumpsys package` tells of a package (PackageManagerService).
type about struct {
	found      bool
	debuggable bool
	abi        string // of its native libraries; empty: it has none, the device's first counts
}

var (
	abiField   = regexp.MustCompile(`(?m)^\s*primaryCpuAbi=(\S+)`)
	flagsField = regexp.MustCompile(`(?m)^\s*(?:pkgFlags|flags)=\[([^\]]*)\]`)
)

func parse(text, name string) about {
	_, text, found := strings.Cut(text, "Package ["+name+"]")
	p := about{found: found}
	// The next package's, an overlay's or the updated system app's, is none of it.
	text, _, _ = strings.Cut(text, "\n  Package [")
	if m := abiField.FindStringSubmatch(text); m != nil && m[1] != "null" {
		p.abi = m[1]
	}
	for _, m := range flagsField.FindAllStringSubmatch(text, -1) {
		for _, f := range strings.Fields(m[1]) {
			p.debuggable = p.debuggable || f == "DEBUGGABLE"
		}
	}
	return p
}
