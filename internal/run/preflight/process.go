// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Process describes how the host restricts this process.
type Process struct {
	UID      int
	Context  string // SELinux context on Android; empty: none, or this is not Android
	Filtered bool   // it inherited a seccomp filter, which refuses or traps some calls
}

// LookProcess examines this process.
func LookProcess() Process {
	p := Process{UID: os.Geteuid()}
	mode, err := unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	p.Filtered = err == nil && mode == unix.SECCOMP_MODE_FILTER
	p.Context = androidContext(readText("/proc/self/attr/current"))
	return p
}

// androidContext returns the context if it has the form of Android's policy. Other security
// modules use the same file.
func androidContext(text string) string {
	context := strings.TrimRight(text, "\x00\n")
	if strings.HasPrefix(context, "u:r:") {
		return context
	}
	return ""
}

// App reports whether the process is an Android app: in each of its users, Android gives
// the user IDs from 10000 to 19999 to apps (system/core, android_filesystem_config.h).
func (p Process) App() bool {
	id := p.UID % 100000
	return p.Context != "" && id >= 10000 && id < 20000
}

// Restricted reports whether there is anything to say about the process.
func (p Process) Restricted() bool { return p.Filtered || p.Context != "" }

// String describes the restrictions.
func (p Process) String() string {
	words := []string{fmt.Sprintf("uid %d", p.UID)}
	if p.App() {
		words[0] = "an Android app, " + words[0]
	}
	if p.Context != "" {
		words = append(words, "SELinux context "+p.Context)
	}
	if p.Filtered {
		words = append(words, "under a seccomp filter, as in an app or a container; lklrun does without the calls that the filter traps")
	}
	return strings.Join(words, ", ")
}
