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
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/base/exit"
)

// lockPoll is the interval at which Unpack tries to get the lock of another process.
const lockPoll = 200 * time.Millisecond

// unpackScript unpacks what the selftests need from the source package $1 to the folder $2.
const unpackScript = `rm -rf "$2.new"; mkdir -p "$2.new"
top=$(basename "$1" .tar.xz)
tar -C "$2.new" --strip-components=1 -xJf "$1" --anchored --exclude "$top/drivers" --exclude "$top/sound" \
	--exclude "$top/fs" --exclude "$top/Documentation" --exclude "$top/net" --exclude "$top/tools/perf"
rm -rf "$2"; mv "$2.new" "$2"`

// buildScript compiles the programs of the collection $2 of the tree $1. Some programs need
// libraries that few machines have, so make continues after errors.
const buildScript = `[ -d "$1/usr/include/linux" ] || make -s -C "$1" headers
[ -e "$1/tools/testing/selftests/$2/.built" ] || {
	make -s -k -j"$(nproc)" -C "$1/tools/testing/selftests/$2" || :
	touch "$1/tools/testing/selftests/$2/.built"
}`

// Unpack returns a tree with the selftests of a Debian source package, in the cache, in which the
// programs of these collections are compiled. Errors of compilers are in the file whose name ends
// with ".log".
func Unpack(ctx context.Context, version string, collections []string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "lklrun")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(cache, "lock-selftests"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	for errors.Is(unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK) {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(lockPoll):
		}
	}
	name := "linux-source-" + version + ".tar.xz"
	tarball := filepath.Join("/usr/src", name)
	st, err := os.Stat(tarball)
	if err != nil {
		tarball = filepath.Join(cache, name) // .ci/linux-source
		if st, err = os.Stat(tarball); err != nil {
			return "", exit.Usagef("the tests of Linux %s: install the package linux-source-%[1]s, or name a kernel tree", version)
		}
	}
	// `lklrun stack clean` deletes this name.
	tree := filepath.Join(cache, fmt.Sprintf("work-selftests-%s-%d", version, st.ModTime().Unix()))
	if !isDir(tree) {
		if err := shell(ctx, tree+".log", unpackScript, tarball, tree); err != nil {
			return "", err
		}
	}
	for _, c := range collections {
		if !needsBuild(filepath.Join(tree, "tools/testing/selftests"), c) {
			continue // Find reports a folder that does not exist
		}
		if err := shell(ctx, tree+".log", buildScript, tree, c); err != nil {
			return "", err
		}
	}
	return tree, nil
}

// needsBuild reports whether a collection exists and may have programs to compile.
func needsBuild(selftests, collection string) bool {
	return collection != "net/"+Drill && filepath.IsLocal(collection) && isDir(filepath.Join(selftests, collection))
}

func shell(ctx context.Context, log, script string, args ...string) error {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-euc", script, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), "MAKEFLAGS=", "LC_ALL=C")
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("preparing the tests: %w; the output is in %s", err, log)
	}
	return nil
}

// Collections returns the folders that suites need, without duplicates.
func Collections(suites []string) (all []string) {
	for _, s := range suites {
		if c := Collection(s); c != "" && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// FindDrill returns the path of packetdrill.
func FindDrill(file string) (string, error) {
	if file == "" {
		file = Drill
	}
	path, err := exec.LookPath(file)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		var missing *exec.Error
		if errors.As(err, &missing) {
			err = missing.Err
		}
		return "", exit.Usagef("%s: %w; build it from the source of packetdrill, and pass its path with --packetdrill", file, err)
	}
	return path, nil
}
