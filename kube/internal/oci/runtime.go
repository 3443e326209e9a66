// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// folders contains the OCI runtime. podman does not pass PATH to all commands.
var folders = []string{"/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/usr/sbin", "/bin", "/sbin"}

// findRuntime returns the path of the OCI runtime that runs the containers: crun, or
// else runc.
func findRuntime() (string, error) {
	for _, name := range []string{"crun", "runc"} {
		for _, dir := range folders {
			if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("neither crun nor runc is in %s; install crun", strings.Join(folders, ", "))
}

// become replaces this process with the OCI runtime.
func become(path string, args []string) error {
	err := syscall.Exec(path, append([]string{filepath.Base(path)}, args...), os.Environ())
	return fmt.Errorf("executing %s: %w", path, err)
}

// keepFiles makes the descriptors that this process has inherited close-on-exec, so
// that no process but the OCI runtime gets them. It returns them for call.
func keepFiles() ([]uintptr, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("listing the descriptors: %w", err)
	}
	var files []uintptr
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue // our own, or that of the folder, which is closed again
		}
		for len(files) <= fd {
			files = append(files, ^uintptr(0)) // not open
		}
		files[fd] = uintptr(fd)
		if fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return files, nil
}

// call runs the OCI runtime with these descriptors under the same numbers, and returns
// its exit status.
func call(path string, args []string, files []uintptr) (int, error) {
	pid, err := syscall.ForkExec(path, append([]string{filepath.Base(path)}, args...), &syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return 0, fmt.Errorf("executing %s: %w", path, err)
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	if status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return status.ExitStatus(), nil
}
