// SPDX-License-Identifier: Apache-2.0

package app

import (
	"regexp"
	"strconv"
	"strings"
)

// about holds the output of `dumpsys package` for one package
// (PackageManagerService).
type about struct {
	found      bool
	debuggable bool
	uid        int    // the app's user ID for Android's first user
	abi        string // ABI of the native libraries; empty: there are none, so the device's first ABI applies
}

var (
	abiField   = regexp.MustCompile(`(?m)^\s*primaryCpuAbi=(\S+)`)
	uidField   = regexp.MustCompile(`(?m)^\s*(?:userId|appId)=(\d+)`)
	flagsField = regexp.MustCompile(`(?m)^\s*(?:pkgFlags|flags)=\[([^\]]*)\]`)
)

func parse(text, name string) about {
	_, text, found := strings.Cut(text, "Package ["+name+"]")
	p := about{found: found}
	// A second package may follow: an overlay, or the original of an updated system
	// app.
	text, _, _ = strings.Cut(text, "\n  Package [")
	if m := abiField.FindStringSubmatch(text); m != nil && m[1] != "null" {
		p.abi = m[1]
	}
	if m := uidField.FindStringSubmatch(text); m != nil {
		p.uid, _ = strconv.Atoi(m[1]) // digits; a number that is too large is no user ID either
	}
	for _, m := range flagsField.FindAllStringSubmatch(text, -1) {
		for _, f := range strings.Fields(m[1]) {
			p.debuggable = p.debuggable || f == "DEBUGGABLE"
		}
	}
	return p
}
