"""What runs on a host over ssh: shell scripts, so that no Python is needed there.

Each line of theirs that counts begins with the byte 2; whatever a login shell prints before is ignored.
"""

#: Arguments: the program.
VERSION = r"""printf '\002'; exec "$1" --version"""

#: Answers each line of its input with the wall clock in nanoseconds.
CLOCK = r"""while read -r line; do printf '\002%s\n' "$(date +%s%N)"; done"""

#: Runs or resumes, as `task.py` does. The study comes first on its input; after that, the end of the input ends the program.
SCRIPT = r"""
set -u
umask 077
binary=$1 key=$2 point=$3 seed=$4 version=$5 size=$6 most=$7 limit=$8 share=$9
shift 9
start=$1 every=$2 ahead=$3
exec 3<&0
fail() { printf 'error: %s\n' "$1" >&2; exit 9; }
there=$("$binary" --version </dev/null 2>/dev/null | head -n 1 | cut -d ' ' -f 2)
[ "$there" = "$version" ] || fail "its tcptoll is version ${there:-unknown}, but $version was asked"
folder=${XDG_DATA_HOME:-$HOME/.local/share}/tcptoll/fleet
mkdir -p "$folder" && chmod 700 "$folder" || fail "the folder $folder cannot be written"
record=$folder/$key.jsonl study=$folder/$key.toml errors=$folder/$key.$$.err
trap 'rm -f "$errors" "$study.$$"' EXIT
trap 'exit 9' HUP INT PIPE TERM
head -c "$size" <&3 >"$study.$$" && [ "$(wc -c <"$study.$$")" -eq "$size" ] || fail "the study did not arrive"
mv -f "$study.$$" "$study" || fail "the folder $folder cannot be written"
count() { if [ -s "$record" ]; then grep -c '^{"line":"trial"' "$record"; else echo 0; fi; }
before=$(count) tries=0 anew=0 end=$(($(date +%s) + most))
printf '\002found %s\n' "$before"
while :; do
  if [ "$anew" = 0 ] && [ -s "$record" ]; then
    set -- "--resume=$record"
  else
    set -- "$study" "--vantage=$point" "--seed=$seed" "--out=$record"
    [ -z "$share" ] || set -- "$@" "--set=share=$share" "--start-at=$start" "--every=$every" "--clock-ahead=$ahead"
  fi
  "$binary" study run "$@" --stop-on-eof -q <&3 >/dev/null 2>"$errors" &
  pid=$! last=$before
  while kill -0 "$pid" 2>/dev/null; do
    sleep 0.5 2>/dev/null || sleep 1
    now=$(count)
    [ "$now" = "$last" ] || printf '\002trials %s\n' "$now"
    last=$now
    [ "$(date +%s)" -lt "$end" ] || kill -TERM "$pid" 2>/dev/null
  done
  wait "$pid"
  status=$?
  if [ "$status" = 2 ] && [ "$tries" -lt 20 ] && grep -q 'another run is writing it' "$errors"; then
    tries=$((tries + 1))
    sleep 0.5 2>/dev/null || sleep 1
    before=$(count)
  elif [ "$status" = 2 ] && [ "$anew" = 0 ] && [ -e "$record" ] && grep -q 'it is empty' "$errors"; then
    anew=1
  else
    break
  fi
done
bytes=0
[ ! -f "$record" ] || bytes=$(($(wc -c <"$record")))
if [ "$bytes" -gt "$limit" ]; then
  printf 'error: its record has %s MB; the limit is %s MiB\n' $((bytes / 1000000)) $((limit / 1048576)) >"$errors"
  status=3 bytes=0
fi
tail -c 4096 "$errors" >"$study.$$"
printf '\002result %s %s %s %s %s\n' "$status" "$before" "$(count)" $(($(wc -c <"$study.$$"))) "$bytes"
cat "$study.$$"
[ "$bytes" = 0 ] || head -c "$bytes" "$record"
"""
