// SPDX-License-Identifier: Apache-2.0

package targets

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/base/program"
	"github.com/lklrun/lklrun/internal/remote/ondevice"
	"github.com/lklrun/lklrun/test/kit"
)

// maxBundle is the maximum size of a bundle in bytes.
const maxBundle = 11_790_000

// maxProgram is the maximum size of bin/lklrun in bytes. A package with many dependencies, or a
// call that keeps all methods (reflect.Value.MethodByName), costs megabytes; slices.SortFunc costs
// 15 kB for each type of element, and sort.Slice nothing.
const maxProgram = 18_000_000

func TestProgramSize(t *testing.T) {
	st, err := os.Stat(filepath.Join(kit.Root(), "bin", "lklrun"))
	if err != nil {
		t.Fatal(err)
	}
	if st.Size() > maxProgram {
		t.Errorf("bin/lklrun has %d bytes; %d are allowed", st.Size(), maxProgram)
	}
}

// bundleArchs are the architectures for which `make cross` builds bundles, with their
// ELF machines.
var bundleArchs = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "arm": elf.EM_ARM}

// readBundle reads both files of a bundle and checks them against the manifest.
func readBundle(t *testing.T, arch string) map[string][]byte {
	t.Helper()
	base := filepath.Join(kit.Root(), "bin", "bundles", "lklrun-"+arch)
	text, err := os.ReadFile(base + ".json")
	if err != nil {
		t.Fatalf("%v; `make cross` makes the bundles", err)
	}
	var m ondevice.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	archive, err := os.ReadFile(base + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(archive); m.Arch != arch || m.Hash != hex.EncodeToString(sum[:]) {
		t.Errorf("the manifest is of another archive: %s, %s", m.Arch, m.Hash)
	}
	if len(archive) > maxBundle {
		t.Errorf("it has %d bytes; %d are allowed", len(archive), maxBundle)
	}
	z, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	var unpacked int64
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" {
			t.Errorf("%s: of %v, %d:%d %q: another build makes another archive", h.Name, h.ModTime, h.Uid, h.Gid, h.Uname)
		}
		name := filepath.Clean(h.Name)
		i := slices.IndexFunc(m.Files, func(f ondevice.ManifestFileEntry) bool { return f.Name == name })
		if h.Typeflag == tar.TypeDir {
			continue
		} else if i < 0 {
			t.Errorf("%s is not in the manifest", name)
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		f, sum := m.Files[i], sha256.Sum256(data)
		switch {
		case h.Typeflag == tar.TypeSymlink && f.Link == h.Linkname:
		case h.Typeflag == tar.TypeReg && f.Link == "" && f.Size == h.Size && f.Mode == h.FileInfo().Mode() && f.SHA256 == hex.EncodeToString(sum[:]):
			files[name] = data
			unpacked += h.Size
		default:
			t.Errorf("%s: %+v, and the manifest says %+v", name, h, f)
		}
		m.Files = slices.Delete(m.Files, i, i+1)
	}
	if len(m.Files) != 0 {
		t.Errorf("the archive lacks %+v", m.Files)
	}
	t.Logf("%d bytes, unpacked %d", len(archive), unpacked)
	return files
}

// TestBundles checks that no file of a bundle depends on files of the device. No file may
// have properties that Android, or a kernel with pages of 16 KiB, refuses.
func TestBundles(t *testing.T) {
	for arch, machine := range bundleArchs {
		t.Run(arch, func(t *testing.T) {
			files := readBundle(t, arch)
			seen := 0
			for name, data := range files {
				if !bytes.HasPrefix(data, []byte(elf.ELFMAG)) {
					continue
				}
				f, err := elf.NewFile(bytes.NewReader(data))
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				seen++
				if f.Machine != machine {
					t.Errorf("%s is for %v", name, f.Machine)
				}
				checkSegments(t, name, f, strings.HasSuffix(name, ".so"))
			}
			want := []string{"lklrun", "lklhost", "stacks/mptcp/liblkl.so", "stacks/mptcp/stack.json", "LICENSES/GPL-2.0-only.txt", "LICENSES/modules.txt"}
			if arch != "arm" {
				want = append(want, program.PreloadLibrary, program.PreloadLibraryBionic)
			}
			for _, name := range want {
				if len(files[name]) == 0 {
					t.Errorf("there is no %s", name)
				}
			}
			if seen < 3 {
				t.Errorf("only %d ELF files were looked at", seen)
			}
		})
	}
}

// checkSegments checks the segments that the kernel or a loader maps.
func checkSegments(t *testing.T, name string, f *elf.File, library bool) {
	if f.Type != elf.ET_DYN {
		t.Errorf("%s: %v: is not position-independent", name, f.Type)
	}
	stack := false
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_LOAD:
			if p.Flags&(elf.PF_W|elf.PF_X) == elf.PF_W|elf.PF_X {
				t.Errorf("%s: a segment that is writable and executable: %+v", name, p.ProgHeader)
			}
			if p.Align < 16<<10 || (p.Vaddr-p.Off)%p.Align != 0 {
				t.Errorf("%s: a segment for pages of less than 16 KiB: %+v", name, p.ProgHeader)
			}
		case elf.PT_GNU_STACK:
			stack = true
			if p.Flags&elf.PF_X != 0 {
				t.Errorf("%s: an executable stack", name)
			}
		case elf.PT_INTERP:
			t.Errorf("%s: needs a loader", name)
		}
	}
	if !stack {
		t.Errorf("%s: says nothing of its stack, which is executable then", name)
	}
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	// The program has already loaded the C library. Most libraries for devices do not even
	// name it.
	if name == program.PreloadLibraryBionic {
		if !slices.Equal(needed, []string{"libc.so", "libdl.so"}) {
			t.Errorf("%s: needs %q", name, needed)
		}
	} else if len(needed) != 0 && !(library && f.Machine == elf.EM_X86_64 && slices.Equal(needed, []string{"libc.so.6"})) {
		t.Errorf("%s: needs %q", name, needed)
	}
	flags, err := f.DynValue(elf.DT_FLAGS)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	for _, v := range flags {
		if elf.DynFlag(v)&elf.DF_TEXTREL != 0 {
			t.Errorf("%s: text relocations", name)
		}
	}
	if v, err := f.DynValue(elf.DT_TEXTREL); err != nil || len(v) != 0 {
		t.Errorf("%s: text relocations, %v", name, err)
	}
}

// bareRoot returns a root directory that contains only a bundle in /data/b, a shell
// with busybox's tools, /proc and /dev. It has no /tmp, /run, /etc or libraries.
func bareRoot(t *testing.T, arch string) string {
	t.Helper()
	kit.Need(t, "unshare", "pivot_root")
	root := filepath.Join(kit.Dir(t), "bare")
	busybox := filepath.Join(kit.Root(), "build", "debs", "busybox-"+arch, "bin", "busybox")
	if _, err := os.Stat(busybox); err != nil {
		t.Fatalf("%v; .ci/fetch-debs %s build/debs/busybox-%s busybox-static gets it", err, arch, arch)
	}
	for _, dir := range []string{"bin", "proc", "dev", "data/b"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kit.OK(t, kit.Limit, exec.Command("cp", busybox, filepath.Join(root, "bin")))
	for _, name := range []string{"sh", "wget", "sha256sum", "ip", "cat", "id", "umount"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	kit.OK(t, kit.Limit, exec.Command("tar", "-C", filepath.Join(root, "data", "b"), "-xzf", filepath.Join(kit.Root(), "bin", "bundles", "lklrun-"+arch+".tar.gz")))
	return root
}

// inBareRoot is a shell command line in that root, with these variables and PATH only.
func inBareRoot(root, line string, env ...string) *exec.Cmd {
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-euc",
		`mount -n --bind "$1" "$1"; cd "$1"; mount -n -t proc proc proc; mount -n --rbind /dev dev; pivot_root . .; umount -l .; exec sh -euc "$2"`, "sh", root, line)
	cmd.Env = append([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, env...)
	return cmd
}

func TestBundleInEmptyRoot(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	root := bareRoot(t, "amd64")
	const runDir = "LKLRUN_RUN_DIR=/data/run"
	before := kit.Take(t)
	defer before.Same()
	// lklrun from the bundle is also the stack's gateway.
	r := kit.Run(t, kit.Limit, inBareRoot(root, "exec /data/b/lklrun -- wget -qO- "+kit.ServerURL+"/hello", runDir))
	if r.Status != 0 || r.Stdout != "hello\n" {
		t.Fatalf("wget: %v", r)
	}
	r = kit.Run(t, kit.Limit, inBareRoot(root, "exec /data/b/lklrun --stack bbr -- sh -c 'ip link show eth0; exit 3'", runDir))
	if r.Status != 3 || !strings.Contains(r.Stdout, "eth0:") {
		t.Fatalf("exit status and interfaces: %v", r)
	}
	// If the library differs from the linked one, lklrun must refuse it, because lklrun
	// would not run that library.
	lib, err := os.ReadFile(filepath.Join(root, "data/b/stacks/mptcp/liblkl.so"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(lib))
	if err != nil {
		t.Fatal(err)
	}
	id := f.Section(".note.gnu.build-id")
	if id == nil {
		t.Fatal("the library has no build id")
	}
	lib[id.Offset+id.Size-1] ^= 1
	other := filepath.Join(root, "data/other.so")
	if err := os.WriteFile(other, lib, 0o755); err != nil {
		t.Fatal(err)
	}
	r = kit.Run(t, kit.Limit, inBareRoot(root, "exec /data/b/lklrun --engine supervise --stack /data/other.so -- id", runDir))
	if r.Status != 2 || r.Stdout != "" || !strings.Contains(r.Stderr, "can only use its built-in library") || len(kit.Lines(r.Stderr)) != 1 {
		t.Fatalf("another library: %v", r)
	}
	if err := os.Remove(other); err != nil {
		t.Error(err)
	}
	// If no directory for runs can be created, lklrun reports this in one line.
	r = kit.Run(t, kit.Limit, inBareRoot(root, "exec /data/b/lklrun -- id", "LKLRUN_RUN_DIR=/nowhere/run"))
	if r.Status != 2 || r.Stdout != "" || len(kit.Lines(r.Stderr)) != 1 {
		t.Fatalf("no place for run directories: %v", r)
	}
	if entries, err := os.ReadDir(root); err != nil || fmt.Sprint(names(entries)) != "[bin data dev proc]" {
		t.Errorf("in the root: %v, %v", names(entries), err)
	}
}

func names(entries []os.DirEntry) (all []string) {
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}
