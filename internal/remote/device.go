// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"io"
	"strings"
)

// Facts contains the properties of a device.
type Facts struct {
	Arch    string `json:"arch"`              // Go's name: amd64, arm64, arm
	Machine string `json:"machine"`           // uname -m
	Kernel  string `json:"kernel"`            // uname -r
	UID     int    `json:"uid"`               // user ID of the launcher; 0 with su
	Su      string `json:"su,omitempty"`      // command for root rights: "su -c", "su 0"; empty: no su
	ABI     string `json:"abi,omitempty"`     // Android: ro.product.cpu.abi
	SDK     string `json:"sdk,omitempty"`     // Android: ro.build.version.sdk
	SELinux string `json:"selinux,omitempty"` // Enforcing, Permissive, Disabled
	Base    string `json:"base"`              // folder of all files
	Free    int64  `json:"free"`              // free space in that folder, in bytes
}

// Options contains the options of Prepare.
type Options struct {
	Bundles  string                                 // folder with the bundles; empty: the folder beside this program
	Progress func(device string, done, total int64) // called during the upload of the bundle
	NeedRoot string                                 // the part of the command line that needs root; empty: none
	Only     bool                                   // use only an existing bundle, upload nothing
}

// Ready is a device that has the bundle.
type Ready struct {
	Device
	Facts Facts
	Dir   string // folder of the unpacked bundle on the device
}

// Command returns the shell command for a command line of the device's lklrun,
// as root if su allows it.
func (r *Ready) Command(args ...string) string {
	words := []string{Quote(r.Dir + "/lklrun")}
	for _, a := range args {
		words = append(words, Quote(a))
	}
	return r.Shell("exec " + strings.Join(words, " "))
}

// Shell returns the shell command for a command line, as root if su allows it.
func (r *Ready) Shell(line string) string {
	if r.Facts.Su != "" {
		return asRoot(r.Facts.Su, line)
	}
	return line
}

// programs is a Device without a shell, on which lklrun is already installed.
type programs interface {
	RunProgram(ctx context.Context, c Command, args ...string) (status int, err error)
	StartProgram(ctx context.Context, stderr io.Writer, args ...string) (Stream, error)
}

// Launch starts the device's lklrun with these arguments.
func (r *Ready) Launch(ctx context.Context, stderr io.Writer, args ...string) (Stream, error) {
	if d, ok := r.Device.(programs); ok {
		return d.StartProgram(ctx, stderr, args...)
	}
	return r.Start(ctx, r.Command(args...), stderr)
}

// Call runs the device's lklrun with these arguments, and returns its exit status. It
// sets c.Line.
func (r *Ready) Call(ctx context.Context, c Command, args ...string) (status int, err error) {
	if d, ok := r.Device.(programs); ok {
		return d.RunProgram(ctx, c, args...)
	}
	c.Line = r.Command(args...)
	return r.Run(ctx, c)
}

// asRoot returns a command line that runs line with su.
func asRoot(su, line string) string {
	if su == "su 0" { // AOSP's su takes a user, then the words of the command
		return "exec su 0 sh -c " + Quote(line)
	}
	return "exec " + su + " " + Quote(line)
}

// Quote quotes a text as one word for the shell.
func Quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./=:,@%+") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
