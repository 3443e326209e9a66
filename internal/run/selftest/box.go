// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stopLimit bounds the wait for the output of a test that was killed.
const stopLimit = 10 * time.Second

// Box returns the command that executes args in a box, by the program and verb that call Enter. In the box,
// all file systems are read-only, except for private copies of root and of the folders for
// temporary files. Processes, networks and IPC objects of the host are not visible. When the
// command ends or ctx does, all processes in the box end.
func Box(ctx context.Context, self []string, root, dir string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self[0], slices.Concat(self[1:], []string{root, dir}, args)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		// Scripts require the user root. The others' files remain those of nobody.
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
		Pdeathsig:   unix.SIGKILL,
	}
	cmd.WaitDelay = stopLimit
	return cmd
}

// private is the place of the box's own files.
const private = "/run"

// Enter is the part of Box in the new process, which becomes the command.
func Enter(root, dir string, args []string) error {
	if os.Getpid() != 1 {
		return errors.New("not in a box")
	}
	steps := []func() error{
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		},
		func() error { return unix.Mount("tmpfs", private, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755") },
		func() error { return devices("/dev") },
		func() error {
			return unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		},
		func() error { return unix.Mount("/proc/sys", "/proc/sys", "", unix.MS_BIND, "") },
		func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/proc/sys", 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		},
		// The settings of the box's own network remain writable.
		func() error { return unix.Mount("/proc/sys/net", "/proc/sys/net", "", unix.MS_BIND, "") },
		func() error {
			return unix.MountSetattr(unix.AT_FDCWD, "/proc/sys/net", 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		},
		func() error { return cover("/tmp", "tmp") },
		func() error { return cover("/var/tmp", "vartmp") },
		func() error { return cover(root, "root") },
		func() error { return os.Chdir(dir) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("isolating the test, step %d: %w", i, err)
		}
	}
	for _, v := range os.Environ() { // settings of the caller, such as the folder for runs
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "LKLRUN_") {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	for name, value := range map[string]string{
		"HOME": "/tmp", "TMPDIR": "/tmp", "XDG_RUNTIME_DIR": private, "XDG_CACHE_HOME": "/tmp/.cache",
		// /tmp shows the caller's history of the host's counters, or that of another user.
		"NSTAT_HISTORY": "/tmp/.nstat.box",
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	// In another user namespace, nobody can undo these mounts.
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		return err
	}
	args = append([]string{unshare, "--map-root-user", "--mount"}, args...)
	return fmt.Errorf("%s: %w", unshare, unix.Exec(unshare, args, os.Environ()))
}

// cover covers a folder with a copy whose changes end with the box.
func cover(dir, name string) error {
	upper, work := filepath.Join(private, ".box", name), filepath.Join(private, ".box", name+".work")
	if err := errors.Join(os.MkdirAll(upper, 0o777), os.MkdirAll(work, 0o700), os.Chmod(upper, 0o777)); err != nil {
		return err
	}
	return unix.Mount("overlay", dir, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,userxattr", dir, upper, work))
}

// devices covers /dev with one that has only devices without data of the host.
func devices(dev string) error {
	all := []string{"null", "zero", "full", "random", "urandom", "tty", "fuse", "net/tun", "ptmx"}
	files := map[string]int{}
	for _, name := range all {
		fd, err := unix.Open(filepath.Join(dev, name), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err == nil {
			files[name] = fd
		}
	}
	if err := unix.Mount("tmpfs", dev, "tmpfs", unix.MS_NOSUID, "mode=755"); err != nil {
		return err
	}
	for name, fd := range files {
		path := filepath.Join(dev, name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o666))
		if err == nil {
			err = unix.Mount(fmt.Sprintf("/proc/self/fd/%d", fd), path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	for name, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(dev, "shm"), 0o777); err != nil {
		return err
	}
	return os.Mkdir(filepath.Join(dev, "pts"), 0o755)
}
