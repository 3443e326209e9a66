// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"io"
	"strings"
)

// Facts are what was found out about a device.
type Facts struct {
	Arch    string `json:"arch"`              // as Go calls it: amd64, arm64, arm
	Machine string `json:"machine"`           // uname -m
	Kernel  string `json:"kernel"`            // uname -r
	UID     int    `json:"uid"`               // that the launcher runs as: 0 with su
	Su      string `json:"su,omitempty"`      // how root is had: "su -c", "su 0"; empty: not by su
	ABI     string `json:"abi,omitempty"`     // Android: ro.product.cpu.abi
	SDK     string `json:"sdk,omitempty"`     // Android: ro.build.version.sdk
	SELinux string `json:"selinux,omitempty"` // Enforcing, Permissive, Disabled
	Base    string `json:"base"`              // the folder that all lies under
	Free    int64  `json:"free"`              // bytes free there
}

// Options of Prepare.
type Options struct {
	Bundles  string                                 // the folder with the bundles; empty: beside this program
	Progress func(device string, done, total int64) // while the bundle is put there
	NeedRoot string                                 // what of the command line takes root there; empty: nothing
	Only     bool                                   // a bundle that is there already: nothing is put there
}

// Ready is a device that has the bundle.
type Ready struct {
	Device
	Facts Facts
	Dir   string // the unpacked bundle there
}

// Command makes a shell command of a command line of the device's lklrun, as root
// where su gives that.
func (r *Ready) Command(args ...string) string {
	words := []string{Quote(r.Dir + "/lklrun")}
	for _, a := range args {
		words = append(words, Quote(a))
	}
	return r.Shell("exec " + strings.Join(words, " "))
}

// Shell makes a shell command of a command line, as root where su gives that.
func (r *Ready) Shell(line string) string {
	if r.Facts.Su != "" {
		return asRoot(r.Facts.Su, line)
	}
	return line
}

// Launch starts the device's lklrun with these arguments.
func (r *Ready) Launch(ctx context.Context, stderr io.Writer, args ...string) (Stream, error) {
	return r.Start(ctx, r.Command(args...), stderr)
}

// asRoot makes a command line that su runs.
func asRoot(su, line string) string {
	if su == "su 0" { // of AOSP: a user, then words
		return "exec su 0 sh -c " + Quote(line)
	}
	return "exec " + su + " " + Quote(line)
}

// Quote makes one word of a shell's of any text.
func Quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
