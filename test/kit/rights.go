// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"fmt"
	"os/exec"
	"regexp"
	"syscall"
)

// Nobody is a user that every Debian has.
const Nobody = 65534

// OtherUID is a user unrelated to OrdinaryUID.
const OtherUID = OrdinaryUID + 1

// NoRights matches /proc/PID/status of a process without capabilities.
var NoRights = regexp.MustCompile(`(?s)CapInh:\t0+\nCapPrm:\t0+\nCapEff:\t0+\n.*CapAmb:\t0+\n.*NoNewPrivs:\t1\n`)

// Rights describes a caller that has only CAP_NET_ADMIN and CAP_NET_RAW, and the engines
// that it can use.
type Rights struct {
	Who     string
	setpriv []string
	Engines []string
}

// AllRights are the callers: an ordinary user and root, each with only these
// capabilities.
var AllRights = []Rights{
	{"user", []string{fmt.Sprint("--reuid=", OrdinaryUID), fmt.Sprint("--regid=", OrdinaryUID), "--clear-groups",
		"--inh-caps=-all,+net_admin,+net_raw", "--ambient-caps=-all,+net_admin,+net_raw", "--bounding-set=-all,+net_admin,+net_raw"}, []string{"supervise", "preload"}},
	{"root", []string{"--inh-caps=-all", "--bounding-set=-all,+net_admin,+net_raw"}, []string{"supervise", "preload"}},
}

// Command is a command line of that caller.
func (r Rights) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("setpriv", append(r.setpriv, args...)...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "LANG=C.UTF-8"}
	cmd.Dir = "/"
	return cmd
}

// InUserNamespace starts a process of root that is root only in a new user namespace.
func InUserNamespace() *syscall.SysProcAttr {
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
	return &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true}
}
