# For Homebrew on Linux: built from the sources of the tag.
class Tcptoll < Formula
  desc "What TCP connections cost, where the cost comes from, and which setting to change"
  homepage "https://github.com/tcptoll/tcptoll"
  url "https://github.com/tcptoll/tcptoll/archive/refs/tags/v0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000" # of the tag, once there is one
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build
  depends_on :linux

  def install
    system "cargo", "install", *std_cargo_args(path: "crates/tcptoll")
    generate_completions_from_executable(bin/"tcptoll", "completions")
    (buildpath/"man").mkpath
    system bin/"tcptoll", "man", "--dir", buildpath/"man"
    man1.install Dir["man/*.1"]
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/tcptoll --version")
    assert_match "accept queue", shell_output("#{bin}/tcptoll explain accept-queue-full")
  end
end
