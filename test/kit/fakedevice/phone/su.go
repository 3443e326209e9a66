// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit/fakedevice/image"
)

// su becomes root and executes a command, with the syntax of the device's su:
//
//	magisk   su [-] [USER] [-c COMMAND]
//	aosp     su [USER [PROGRAM ARG…]]      (system/extras/su: no option at all)
func su(args []string) error {
	style, err := os.ReadFile(image.SuStyle)
	if err != nil {
		return err
	}
	const shell = "/system/bin/sh"
	argv := []string{shell}
	if string(style) == "aosp" {
		if len(args) > 0 {
			if err := isRoot(args[0]); err != nil {
				return err
			}
		}
		if len(args) > 1 {
			argv = args[1:]
		}
	} else {
		for i := 0; i < len(args); i++ {
			switch {
			case args[i] == "-c" && i+1 < len(args):
				argv = []string{shell, "-c", strings.Join(args[i+1:], " ")}
				i = len(args)
			case args[i] == "-":
			default:
				if err := isRoot(args[i]); err != nil {
					return err
				}
			}
		}
	}
	for _, step := range []func() error{
		func() error { return syscall.Setgroups(nil) },
		func() error { return syscall.Setgid(0) },
		func() error { return syscall.Setuid(0) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("not allowed: %w", err)
		}
	}
	path := argv[0]
	if !strings.Contains(path, "/") {
		path = "/system/bin/" + path
	}
	return fmt.Errorf("%s: %w", path, unix.Exec(path, argv, os.Environ()))
}

func isRoot(user string) error {
	if user != "0" && user != "root" {
		return fmt.Errorf("invalid uid/gid '%s'", user)
	}
	return nil
}
