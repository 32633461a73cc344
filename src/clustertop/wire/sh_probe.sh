# The probe of a node without Python. It is one compound command, so that the shell has read all of it before it
# runs any of it; what comes on stdin after it are requests. Before it stand two lines: n=<nonce>, R=<root or empty>.
#
# Requests, one a line:  host|pcie|rdma all|some    gpu <fields> [check]    each <fields> <seconds>    stop
# Answers, between the marks:  {<group> TAB entry TAB entry ...   An entry is begin=<uptime>, end=<uptime>,
# ><name> (what follows is about this one), <name>=<text>, or <name>!<why it could not be read>.
# Each group answers from a child of its own: one that hangs in a driver holds up nothing else. Each line is one
# write of less than 4096 bytes, so that the children's lines do not mix. Nothing is written to a file; here
# documents are not used, because shells put them into one.
{
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/nvidia/bin
LC_ALL=C
export PATH LC_ALL
unset CDPATH
t='	'
nl='
'
exec 3<&0 4>&1 </dev/null >/dev/null
renice -n 10 -p $$ >/dev/null 2>&1

say() { printf '@@CT1 %s {%.3500s %s CT1@@\n' "$n" "$1" "$n" >&4; }
word() { printf '\n@@CT1 %s %s@@\n' "$n" "$1" >&4; }
flush() { if [ -n "$b" ]; then say "$g$b"; b=; fi; }
add() { b=$b$t$1; if [ ${#b} -gt 2000 ]; then flush; fi; }
opening() { g=$1; b=; u=; read -r u x <"$R/proc/uptime"; add "begin=$u"; }
closing() { u=; read -r u x <"$R/proc/uptime"; add "end=$u"; flush; }

# failed FILE LABEL: read gave nothing. An empty file, or one that cannot be read: only that costs a process, for its words.
failed() {
  v=$(cat "$1" 2>&1 >/dev/null)
  if [ -n "$v" ]; then add "$2!${v##*: }"; else add "$2="; fi
}
# long: what is gathered is long enough for a line; its last value may be too long for any.
long() {
  if [ ${#v} -gt 512 ]; then b=${b%"$v"}$(printf '%.512s' "$v"); fi
  flush
}
# files FILE...: the first line of each, named as given. The shell reads them itself, and little else is done by the
# file, because there are hundreds by the second: names without their directories are a third of the cost of whole ones.
files() {
  for f; do
    v=
    if IFS= read -r v <"$f" || [ -n "$v" ]; then
      b=$b$t$f=$v
      if [ ${#b} -gt 2000 ]; then long; fi
    else
      failed "$f" "$f"
    fi
  done
}
# one FILE LABEL: the same of one file, under another name.
one() {
  v=
  if IFS= read -r v <"$1" || [ -n "$v" ]; then
    b=$b$t$2=$v
    if [ ${#b} -gt 2000 ]; then long; fi
  else
    failed "$1" "$2"
  fi
}
if_there() { if [ -e "$1" ]; then one "$1" "$2"; fi; }
# where DIRECTORY LABEL: where it really is. It is also where the shell is afterwards, which saves a process.
where() {
  if [ -d "$1" ] && cd -P "$1"; then add "$2=$PWD"; fi
}
# class DIRECTORY: true where it can be listed; else says why not.
class() {
  if [ -d "$1" ]; then
    v=$(ls "$1" 2>&1 >/dev/null)
    if [ -z "$v" ]; then return 0; fi
    add "list!${v##*: }"
  else
    add "none="
  fi
  return 1
}

host() {
  one "$R/proc/stat" stat
  one "$R/proc/loadavg" load
  if [ -r "$R/proc/meminfo" ]; then
    while read -r k v x; do
      case $k in MemTotal:|MemAvailable:|SwapTotal:|SwapFree:) add "$k=$v $x" ;; esac
    done <"$R/proc/meminfo"
  fi
  for k in cpu memory io; do if_there "$R/proc/pressure/$k" "psi_$k"; done
  if [ "$1" = all ]; then
    add "date=$(date '+%s.%N')"
    add "arch=$(uname -m)"
    c=0
    while read -r k x; do case $k in cpu[0-9]*) c=$((c + 1)) ;; cpu) ;; *) break ;; esac; done <"$R/proc/stat"
    add "ncpu=$c"
    one "$R/proc/sys/kernel/hostname" host
    one "$R/proc/sys/kernel/osrelease" kernel
    one "$R/proc/sys/kernel/random/boot_id" boot_id
    for f in "$R/etc/os-release" "$R/usr/lib/os-release"; do
      if [ -r "$f" ]; then
        while IFS= read -r v; do case $v in PRETTY_NAME=*) add "os=${v#*=}" ;; esac; done <"$f"
        break
      fi
    done
  fi
  class "$R/sys/class/net" || return 0
  for D in "$R"/sys/class/net/*; do
    case ${D##*/} in veth*|cali*|lxc*|'*') continue ;; esac
    [ -d "$D" ] || continue
    cd "$D" || continue
    add ">${D##*/}"
    files carrier_changes operstate
    if [ "$1" = all ]; then files speed mtu; fi
    if cd statistics; then files rx_bytes tx_bytes rx_packets tx_packets rx_errors tx_errors rx_dropped tx_dropped; fi
    if [ "$1" = all ]; then
      where "$D/device" path
      where "$D/device/physfn" physfn
      where "$D/device/driver" driver
    fi
  done
}

total() {
  [ -e "$1" ] || return 0
  v=
  while read -r k v x; do
    case $k in TOTAL_ERR_*) add "$2=$v"; return 0 ;; esac
  done <"$1"
  one "$1" "$2"
}

pcie() {
  class "$R/sys/bus/pci/devices" || return 0
  for D in "$R"/sys/bus/pci/devices/*; do
    [ -d "$D" ] || continue
    k=
    read -r k <"$D/class"
    case $k in 0x03*|0x02*|0x0108*|0x0604*) ;; *) continue ;; esac
    if [ -e "$D/physfn" ]; then continue; fi
    cd "$D" || continue
    add ">${D##*/}"
    b=$b${t}class=$k
    files current_link_width max_link_width current_link_speed max_link_speed
    for f in aer_dev_correctable aer_dev_nonfatal aer_dev_fatal; do total "$f" "$f"; done
    if [ "$1" = all ]; then
      for f in vendor device subsystem_vendor subsystem_device numa_node; do if_there "$D/$f" $f; done
      where "$D" path
      where "$D/driver" driver
      for f in "$D"/net/* "$D"/nvme/*; do if [ -e "$f" ]; then add "name=${f##*/}"; fi; done
    fi
  done
}

rdma() {
  class "$R/sys/class/infiniband" || return 0
  for D in "$R"/sys/class/infiniband/*; do
    [ -d "$D" ] || continue
    a=${D##*/}
    if [ "$1" = all ]; then
      add ">$a"
      for f in hca_type fw_ver board_id node_guid; do if_there "$D/$f" $f; done
      where "$D/device" path
      where "$D/device/physfn" physfn
      where "$D/device/driver" driver
      for f in "$D"/device/net/*; do
        if [ -e "$f" ]; then v=; read -r v <"$f/dev_port"; add "net=$v ${f##*/}"; fi
      done
    fi
    for P in "$D"/ports/*; do
      [ -d "$P" ] || continue
      add ">$a/${P##*/}"
      if [ "$1" = all ]; then
        if_there "$P/link_layer" link_layer
        if_there "$P/gid_attrs/ndevs/0" ndev
      fi
      cd "$P" || continue
      for f in state phys_state rate counters/* counters_ext/* hw_counters/*; do
        # Of some: what is no news by the second is left out.
        case $1$f in
          *'*') continue ;;
          all*) ;;
          */unicast_*|*/multicast_*|*/VL15_dropped*|*/port_rcv_switch_relay_errors*|*/lifespan*) continue ;;
          */req_*|*/resp_*|*/res_*|*/duplicate_request*|*/rx_read_req*|*/rx_write_req*|*/rx_atomic_req*) continue ;;
          */rx_dct_connect*|*/active_*|*/watermark_*) continue ;;
        esac
        v=
        if IFS= read -r v <"$f" || [ -n "$v" ]; then
          b=$b$t$f=$v
          if [ ${#b} -gt 2000 ]; then long; fi
        else
          failed "$f" "$f"
        fi
      done
    done
  done
}

# sleeper: of process $P, how often it ran, where it sleeps in the kernel.
sleeper() {
  k=
  v=
  while read -r f x z; do
    case $f in State:) k=$x ;; voluntary_ctxt_switches:|nonvoluntary_ctxt_switches:) v=$v+$x ;; esac
  done <"$P/status"
  [ "$k" = D ]
}
# stuck: true where an nvidia-smi hangs in the kernel, and says which: old enough not to be waking the GPUs, asleep
# there, and a second later still asleep without having run. Another one would only hang beside it.
stuck() {
  read -r u x <"$R/proc/uptime"
  for P in "$R"/proc/[0-9]*; do
    k=
    read -r k <"$P/comm"
    if [ "$k" != nvidia-smi ]; then continue; fi
    z=
    IFS= read -r z <"$P/stat"
    set -f
    set -- ${z##*') '}
    set +f
    a=$((${u%.*} - ${20:-0} / 100))
    if [ $a -lt 30 ] || ! sleeper; then continue; fi
    c=$v
    sleep 1
    if sleeper && [ "$v" = "$c" ]; then add "stuck=${P##*/} $a"; return 0; fi
  done
  return 1
}

# ask GPU-OR-EMPTY FIELDS: one nvidia-smi, its output line by line, its exit status, the first lines of its stderr.
ask() {
  add "ask=$1"
  flush
  e=$( {
    if [ -n "$1" ]; then o=$("$M" -i "$1" --query-gpu="$2" --format=csv 3<&- 4>&-)
    else o=$("$M" --query-gpu="$2" --format=csv 3<&- 4>&-); fi
    r=$?
    IFS=$nl
    set -f
    for l in $o; do say "$g${t}row=$l"; done
    say "$g${t}status=$r"
  } 2>&1 )
  IFS=$nl
  set -f
  c=0
  for l in $e; do
    c=$((c + 1))
    if [ $c -le 3 ]; then say "$g${t}err=$l"; fi
  done
  set +f
  IFS=' '
}

gpu() {
  if [ -n "$M" ]; then
    if [ "$2" = check ] && stuck; then return 0; fi
    case $2 in ''|check) ask '' "$1"; return 0 ;; esac
    # One by one, so that a GPU that fails costs only itself. All of them together have the time $2.
    s=${u%.*}
    for D in "$R"/proc/driver/nvidia/gpus/*; do
      [ -e "$D" ] || continue
      read -r u x <"$R/proc/uptime"
      if [ $((${u%.*} - s)) -ge "$2" ]; then add "late=${D##*/}"; else ask "${D##*/}" "$1"; fi
    done
    return 0
  fi
  if [ -d "$R/proc/driver/nvidia" ]; then add "nosmi="; return 0; fi
  for D in "$R"/sys/bus/pci/devices/*; do
    k=
    v=
    read -r k <"$D/vendor"
    read -r v <"$D/class"
    case $k:$v in 0x10de:0x03*) add "nosmi="; return 0 ;; esac
  done
  add "none="
}

# Send TERM to everything below process $1. A process inside the driver takes it when the driver lets it go.
below() {
  k=
  read -r k <"/proc/$1/task/$1/children"
  set -- $k
  while [ $# -gt 0 ]; do
    below "$1"
    kill "$1"
    shift
  done
}

M=$(command -v nvidia-smi)
if [ -n "$R" ] && [ -x "$R/usr/bin/nvidia-smi" ]; then M=$R/usr/bin/nvidia-smi; fi
trap 'exit 0' HUP INT TERM
trap 'below $$ 2>/dev/null' 0
p_host= p_pcie= p_rdma= p_gpu=
word shready
while read -r what one two <&3; do
  case $what in
    host) if [ -n "$p_host" ]; then wait "$p_host"; fi
      ( trap - 0 HUP INT TERM; opening host; host "$one"; closing ) 2>/dev/null & p_host=$! ;;
    pcie) if [ -n "$p_pcie" ]; then wait "$p_pcie"; fi
      ( trap - 0 HUP INT TERM; opening pcie; pcie "$one"; closing ) 2>/dev/null & p_pcie=$! ;;
    rdma) if [ -n "$p_rdma" ]; then wait "$p_rdma"; fi
      ( trap - 0 HUP INT TERM; opening rdma; rdma "$one"; closing ) 2>/dev/null & p_rdma=$! ;;
    gpu|each) if [ -n "$p_gpu" ]; then wait "$p_gpu"; fi
      ( trap - 0 HUP INT TERM; opening gpu; gpu "$one" "$two"; closing ) 2>/dev/null & p_gpu=$! ;;
    stop) break ;;
  esac
done 2>/dev/null
exit 0
}
