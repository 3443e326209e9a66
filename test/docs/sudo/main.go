// SPDX-License-Identifier: Apache-2.0

// Command sudo replaces sudo(8) in the tests of the documentation. It is set-user-ID
// root, runs a command as root, and has no options. Like sudo, it resets HOME and the
// variables of the user's folders.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sudo:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want a command")
	}
	if err := unix.Setresgid(0, 0, 0); err != nil {
		return fmt.Errorf("becoming root's group: %w", err)
	}
	if err := unix.Setresuid(0, 0, 0); err != nil {
		return fmt.Errorf("becoming root: %w", err)
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
	return unix.Exec(path, args, append(env, "HOME=/root"))
}
