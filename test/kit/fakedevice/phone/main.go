// SPDX-License-Identifier: Apache-2.0

// Phone is an emulated device behind adb, for tests. It is the first process of pid,
// mount, ipc and uts namespaces that its caller has made, and uses the device's network
// namespace. It sets up the file system, starts adbd as the user shell, and reaps
// processes. Called as su, it is the device's su.
package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit/fakedevice/adbd"
	"github.com/lklrun/lklrun/test/kit/fakedevice/image"
)

// config is the configuration from the tests, as JSON in the only argument.
type config struct {
	Image        image.Image
	Banner       string
	Listen       string
	Unauthorized bool
	Linux32      bool // uname reports a 32-bit machine
}

// Child processes inherit the namespaces and the personality of the main thread.
func init() { runtime.LockOSThread() }

func main() {
	var err error
	switch {
	case filepath.Base(os.Args[0]) == "su":
		err = su(os.Args[1:])
	case len(os.Args) == 2:
		err = boot(os.Args[1])
	case len(os.Args) == 3 && os.Args[1] == "adbd":
		err = serve(os.Args[2])
	default:
		err = fmt.Errorf("usage: phone CONFIG")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}

func parse(text string) (c config, err error) {
	return c, json.Unmarshal([]byte(text), &c)
}

// boot does the work of init. Only init can reap processes whose shell has ended.
func boot(text string) error {
	c, err := parse(text)
	if err != nil {
		return err
	}
	unix.Umask(0)
	if c.Linux32 {
		const perLinux32 = 8 // PER_LINUX32, include/uapi/linux/personality.h
		if _, _, errno := unix.Syscall(unix.SYS_PERSONALITY, perLinux32, 0, 0); errno != 0 {
			return fmt.Errorf("personality: %w", errno)
		}
	}
	if err := c.Image.Enter(); err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", "adbd", text)
	cmd.Args[0] = "adbd"
	cmd.Env = image.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: image.Shell, Gid: image.Shell, Groups: image.Groups}}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting adbd: %w", err)
	}
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("waiting: %w", err)
		}
		if pid == cmd.Process.Pid {
			return fmt.Errorf("adbd ended: %#x", ws)
		}
	}
}

func serve(text string) error {
	c, err := parse(text)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return err
	}
	s := &adbd.Server{
		Banner:       c.Banner,
		Shell:        adbd.Shell{Path: "/system/bin/sh", Env: image.Env, Dir: "/"},
		Unauthorized: c.Unauthorized,
		Log:          func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) },
	}
	fmt.Println("listening") // the tests wait for this line
	return s.Serve(l)
}
